"""Empty files made ahead, for chains of small objects: on ext4 a new file takes longer to make than to fill."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from .atomic_files import Buffer, fill, temporary_beside

_MOST = 100
"""Folders with a file made ahead."""


class FilesAhead:
    """At most one empty file for each folder. For any number of threads; a forked process has none."""

    def __init__(self) -> None:
        self._process, self._files = 0, dict[Path, Path]()

    def make(self, folder: Path) -> None:
        """Make an empty file in a folder that has none. An error is left to the next write."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._files.clear()
        if folder in self._files:
            return
        empty = temporary_beside(folder / "empty")
        with contextlib.suppress(OSError):
            os.close(os.open(empty, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._files[folder] = empty
            if len(self._files) > _MOST:
                os.unlink(self._files.pop(next(iter(self._files))))

    def fill(self, path: Path, buffers: Iterable[Buffer]) -> bool:
        """Move the folder's empty file to `path` and fill it durably. Returns False without one. Raises OSError."""
        empty = self._files.pop(path.parent, None)
        if empty is None or self._process != os.getpid():
            return False
        try:
            os.rename(empty, path)
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        fill(descriptor, buffers, durable=True)
        return True
