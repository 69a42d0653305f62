"""A session as an executor of `concurrent.futures`, for libraries that take one."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .futures import Future


class SessionExecutor(Executor):
    """A session as a `concurrent.futures.Executor`."""

    def __init__(self, call: Callable[..., Future]) -> None:
        """`call`: the session's `submit`."""
        self._call = call
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """As `Session.submit`."""
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self._call(fn, *args, **kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. The session stays open."""
        self._shut = True
        left = list(self._running)
        for future in left if cancel_futures else ():
            future.cancel()
        if wait:
            concurrent.futures.wait(left)
