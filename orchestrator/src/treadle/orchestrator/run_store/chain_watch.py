"""New objects of a chain on this host, announced by the kernel: to look a thousand times a second takes an eighth of a
processor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle.primitives.stores.atomic_files import is_temporary

MOST = 16
"""Watches of a process at a time. By default Linux gives a user 128, for all programs."""
_free = threading.BoundedSemaphore(MOST)


class ChainWatch:
    """Announces new files of a folder (inotify(7)). For one thread.

    Look at the chain from time to time as well: files that another host makes on a network file system are not
    announced.
    """

    def __init__(self, folder: Path | None, begin: Callable[[int], object]) -> None:
        """`folder`: None: the chain is not on a file system, so nothing is announced. `begin` is called once, with a
        descriptor that is readable after an announcement.
        """
        self._folder, self._start = folder, begin
        self._notify: Any = None

    def announces(self) -> bool:
        """Whether every new file since the last call is announced. It begins once the folder exists."""
        if self._notify is not None:
            return True
        if self._folder is not None and self._folder.exists() and _free.acquire(blocking=False):
            self._begin(self._folder)
        return False  # a file may have been made before

    def _begin(self, folder: Path) -> None:
        from inotify_simple import INotify, flags

        notify = None
        try:
            notify = INotify(nonblocking=True)
            notify.add_watch(folder, flags.CREATE)
        except OSError:  # the user has no watch to spare
            self._folder = None
            self._end(notify)
        else:
            self._notify = notify
            self._start(notify.fileno())

    def _end(self, notify: Any) -> None:
        _free.release()
        if notify is not None:
            notify.close()

    def take(self) -> bool:
        """Forget the announcements so far. Returns whether a whole file was among them."""
        return any(not is_temporary(event.name) for event in self._notify.read(timeout=0))

    def close(self, end: Callable[[int], object] = int) -> None:
        """`end` is called first, with the descriptor, if there is one."""
        notify, self._notify, self._folder = self._notify, None, None
        if notify is not None:
            end(notify.fileno())
            self._end(notify)
