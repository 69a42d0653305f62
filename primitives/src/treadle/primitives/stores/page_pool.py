"""Files of removed blocks, in whose memory the next ones are written: the kernel has to clear fresh pages first."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from .atomic_files import make_folders

LEAST = 512 << 10
"""Bytes of a file that is worth keeping."""
_SHARE, _MOST = 8, 256
"""At most one byte in so many of the file system is kept, and so many files; none when less memory is available."""
_TRIED = 8
"""Spares looked at for one file, should others still read them."""


class Spares:
    """A folder on the file system of the blocks. Any number of processes of one user may share it."""

    def __init__(self, folder: Path, meminfo: Path = Path("/proc/meminfo")) -> None:
        self._folder, self._meminfo = folder, meminfo

    def keep(self, folder: Path) -> None:
        """Take the large files below a folder that is being removed, as far as there is room. Raises OSError."""
        large = [(path, size) for path, size in _files(folder) if size >= LEAST]
        if not large:
            return
        make_folders(self._folder)
        room, places = self._room()
        for path, size in large:
            if size <= room and places:
                self._take_in(path, size)
                room, places = room - size, places - 1

    def _room(self) -> tuple[int, int]:
        """(bytes, files)."""
        system, names = os.statvfs(self._folder), self._names()
        return system.f_blocks * system.f_frsize // _SHARE - sum(map(_size, names)), max(0, _MOST - len(names))

    def _take_in(self, path: Path, size: int) -> None:
        spare = self._folder / f"{size:016x}-{os.urandom(8).hex()}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, spare)
            os.chmod(spare, 0o600)

    def open(self, path: Path, size: int) -> int | None:
        """A descriptor of a file at `path` to write `size` bytes to, its content undefined; None: there is no spare.

        Nobody else has it open or maps it. The folder of `path` exists. Raises OSError.
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
        """Names of spares that hold as much, the smallest first, then of the largest that do not."""
        names = sorted(self._names())
        first = next((index for index, name in enumerate(names) if _size(name) >= size), len(names))
        return [*names[first:], *reversed(names[:first])][:_TRIED]

    def drop(self, seconds: float = 0) -> None:
        """Remove those that nobody wanted for so long; all, if the machine is short of memory. Raises OSError."""
        kept_from = time.time() - (0 if self._short() else seconds)
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                if (self._folder / name).stat().st_ctime <= kept_from:
                    os.unlink(self._folder / name)

    def _short(self) -> bool:
        """Other programs could want what is kept."""
        with contextlib.suppress(OSError, KeyError):  # a system that does not tell
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
    """Whether nobody else has the file open or mapped: only then the kernel grants a lease to write (fcntl(2)).

    A lease that is broken sends a signal; it is one that does nothing.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # it is in use, or there are no leases here
        return False
    return True
