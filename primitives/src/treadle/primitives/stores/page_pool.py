"""A pool of removed block files whose memory pages new blocks reuse: the kernel must clear fresh pages first."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .atomic_files import make_folders

LEAST = 512 << 10
"""Size in bytes from which a file is worth keeping."""
_SHARE, _MOST = 8, 256
"""The pool keeps at most 1/`_SHARE` of the file system's bytes and `_MOST` files; none when memory runs short."""
_TRIED = 8
"""Number of spare files to try for one new file, since other processes may still read them."""


class Spares:
    """A folder on the file system of the blocks. Any number of processes of one user may share it."""

    def __init__(self, folder: Path, meminfo: Path = Path("/proc/meminfo")) -> None:
        self._folder, self._meminfo = folder, meminfo

    def keep(self, folder: Path) -> None:
        """Take the large files below a folder that is being removed, as far as there is room. Raises OSError."""
        self._keep(_files(folder))

    def keep_file(self, path: Path) -> None:
        """Take a file that is being removed, as `keep` does. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._keep([(path, path.stat().st_size)])

    def _keep(self, files: Iterable[tuple[Path, int]]) -> None:
        large = [(path, size) for path, size in files if size >= LEAST]
        if not large:
            return
        make_folders(self._folder)
        room, places = self._room()
        for path, size in large:
            if size <= room and places:
                self._take_in(path, size)
                room, places = room - size, places - 1

    def _room(self) -> tuple[int, int]:
        """The bytes and the number of files that the pool can still take."""
        system, names = os.statvfs(self._folder), self._names()
        return system.f_blocks * system.f_frsize // _SHARE - sum(map(_size, names)), max(0, _MOST - len(names))

    def _take_in(self, path: Path, size: int) -> None:
        spare = self._folder / f"{size:016x}-{os.urandom(8).hex()}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, spare)
            os.chmod(spare, 0o600)

    def open(self, path: Path, size: int) -> int | None:
        """Open a file at `path` for writing `size` bytes, its content undefined; None: no spare file is available.

        No other process has the file open or mapped. The folder of `path` exists. Raises OSError.
        """
        for name in self._fitting(size):
            spare = self._folder / name
            try:
                os.rename(spare, path)
            except FileNotFoundError:  # another process took it
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if _is_ours_alone(descriptor):
                os.ftruncate(descriptor, size)
                return descriptor
            os.close(descriptor)
            os.rename(path, spare)
        return None

    def _fitting(self, size: int) -> list[str]:
        """Return names of spares to try: spares of at least `size` bytes, smallest first, then smaller ones, largest
        first.
        """
        names = sorted(self._names())
        first = next((index for index, name in enumerate(names) if _size(name) >= size), len(names))
        return [*names[first:], *reversed(names[:first])][:_TRIED]

    def drop(self, seconds: float = 0) -> None:
        """Remove spares unused for `seconds`, or all spares if the machine is short of memory. Raises OSError."""
        kept_from = time.time() - (0 if self._short() else seconds)
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                if (self._folder / name).stat().st_ctime <= kept_from:
                    os.unlink(self._folder / name)

    def _short(self) -> bool:
        """Return whether available memory is so low that other programs could need the spares."""
        with contextlib.suppress(OSError, KeyError):  # a system that does not report its memory
            known = dict(line.split()[:2] for line in self._meminfo.read_text().splitlines())
            return int(known["MemAvailable:"]) * _SHARE < int(known["MemTotal:"])
        return False

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []


def _size(name: str) -> int:
    return int(name.partition("-")[0], 16)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat().st_size


def _is_ours_alone(descriptor: int) -> bool:
    """Return whether no other process has the file open or mapped: only then the kernel grants a write lease
    (fcntl(2)).

    The kernel signals a broken lease; the signal is set to one that does nothing.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # the file is in use, or leases are not supported here
        return False
    return True
