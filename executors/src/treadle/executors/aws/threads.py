"""Threads for blocking calls, as many as are under way, that never keep the driver from ending."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


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

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result, or what it raises. Cancelled, the function goes on, and its result is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._idle > self._work.qsize() or self._threads >= self._most:
                start = False
            else:
                self._threads += 1
                start = True
        self._work.put((function, future, loop))
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
            function, future, loop = work
            try:
                result, error = function(), None
            except BaseException as raised:  # noqa: BLE001  it is the caller's
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, future, result, error)
            del work, function, future, result, error

    def _next(self) -> _Work | None:
        with self._lock:
            self._idle += 1
        try:
            return self._work.get()
        finally:
            with self._lock:
                self._idle -= 1


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
