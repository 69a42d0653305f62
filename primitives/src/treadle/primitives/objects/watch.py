"""Waiting for an object with `select`, or in an event loop."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from functools import partial
from typing import Any

from ..errors import TreadleError
from .errors import CallWaitExpired
from .handle import Handle

_WATCH_SECONDS = 1.0
"""After which the thread of a watch looks whether it is still needed."""


class Watch:
    """Makes a descriptor readable while the guard of a method holds, as far as this process knows.

    `method`: it only waits, for something that callers take. They then call `look`. The watch ends with its owner.
    """

    def __init__(self, owner: object, handle: Handle[Any], method: str, *arguments: Any) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wait = partial(getattr(handle.within(_WATCH_SECONDS), method), *arguments)
        self._changed, self._taken, self._ended = threading.Condition(), 0, False
        weakref.finalize(owner, self.end)
        threading.Thread(target=self._run, name="treadle-object-watch", daemon=True).start()

    def look(self) -> None:
        """Something was taken: look whether there is more."""
        with self._changed, contextlib.suppress(BlockingIOError):
            self._taken += 1
            self._changed.notify()
            os.eventfd_read(self.descriptor)

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self) -> None:
        with contextlib.suppress(TreadleError):  # the keeper has ended
            while not self._ended:
                taken = self._taken
                with contextlib.suppress(CallWaitExpired):
                    self._wait()
                    self._announce(taken)
            os.close(self.descriptor)

    def _announce(self, taken: int) -> None:
        """The guard held when `taken` things had been taken. Say so, and wait until one more is."""
        with self._changed:
            if self._taken == taken:
                os.eventfd_write(self.descriptor, 1)
                self._changed.wait_for(lambda: self._ended or self._taken != taken)
