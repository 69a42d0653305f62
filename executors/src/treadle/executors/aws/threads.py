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
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T], begun: Begun = _nothing) -> T:
        """The function's result, or what it raises; `begun` is called in the loop once a thread has it.

        Cancelled before that, it is not called; cancelled after, it goes on, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._idle > self._work.qsize() or self._threads >= self._most:
                start = False
            else:
                self._threads += 1
                start = True
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
        while (work := self._next()) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                _do(work)
            del work

    def _next(self) -> _Work | None:
        with self._lock:
            self._idle += 1
        try:
            return self._work.get()
        finally:
            with self._lock:
                self._idle -= 1


def _do(work: _Work) -> None:
    if work.future.cancelled():
        return
    work.loop.call_soon_threadsafe(_begin, work)
    try:
        result, error = work.function(), None
    except BaseException as raised:  # noqa: BLE001  it is the caller's
        result, error = None, raised
    work.loop.call_soon_threadsafe(_settle, work.future, result, error)


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
