"""Threads for blocking calls, as many as are under way, that never keep the driver from ending."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Begun = Callable[[asyncio.AbstractEventLoop], None]


def _nothing(_: asyncio.AbstractEventLoop) -> None:
    """Nobody asked."""


class _Work(NamedTuple):
    function: Callable[[], Any]
    begun: Begun
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class DaemonThreads:
    """At most `most` at a time, made when they are needed.

    Not a ThreadPoolExecutor: the interpreter waits for the threads of one when it ends, here for up to fifteen minutes
    of a function whose answer nobody wants any more.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = self._under_way = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T], begun: Begun = _nothing) -> T:
        """The function's result, or what it raises; `begun` is called in the loop once a thread has it.

        Cancelled before that, it is not called; cancelled after, it goes on, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._under_way += 1
            start = self._threads < min(self._under_way, self._most)
            self._threads += start
        self._work.put(_Work(function, begun, future, loop))
        if start:
            threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
        return await future

    def close(self) -> None:
        """Let idle threads end, and busy ones after what they are at."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)
            self._threads = 0

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            result, error = _done(work)
            with self._lock:
                self._under_way -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                work.loop.call_soon_threadsafe(_settle, work.future, result, error)
            del work, result, error


def _done(work: _Work) -> tuple[Any, BaseException | None]:
    """(result, None), or what was raised: it is the caller's."""
    try:
        if work.future.cancelled():
            return None, None
        work.loop.call_soon_threadsafe(_begin, work)
        return work.function(), None
    except BaseException as raised:  # noqa: BLE001
        return None, raised


def _begin(work: _Work) -> None:
    if not work.future.done():
        work.begun(work.loop)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
