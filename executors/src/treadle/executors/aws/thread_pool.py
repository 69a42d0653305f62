"""Daemon threads for blocking calls, one for each running call. They never delay the end of the driver."""

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
    """Default callback of `run`."""


class _Work(NamedTuple):
    function: Callable[[], Any]
    begun: Begun
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class DaemonThreads:
    """At most `most` threads, started on demand.

    ThreadPoolExecutor is not suitable: at exit the interpreter waits for its threads, here up to fifteen minutes for a
    function whose answer was given up.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = self._under_way = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T], begun: Begun = _nothing) -> T:
        """Return the function's result, or raise its error. `begun` is called in the loop once a thread has taken the
        function.

        Cancelling before that prevents the call. Cancelling later drops the result, while the function continues.
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
        """Let idle threads end now, and busy threads after their current function."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)
            self._threads = 0

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            result, error = _done(work)
            with self._lock:
                self._under_way -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not needed
                work.loop.call_soon_threadsafe(_settle, work.future, result, error)
            del work, result, error


def _done(work: _Work) -> tuple[Any, BaseException | None]:
    """Return (result, None), or (None, error): the caller receives the error."""
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
