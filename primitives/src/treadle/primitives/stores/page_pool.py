"""A pool of removed block files whose memory pages new blocks reuse: the kernel must clear fresh pages first."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from mmap import ACCESS_WRITE
from pathlib import Path

from .atomic_files import Buffer, make_folders, map_descriptor, write_all
from .file_views import LEAST, try_lock, unlock
from .kept_mappings import KeptMappings

_SHARE, _MOST = 8, 256
"""The pool keeps at most 1/`_SHARE` of the file system's bytes and `_MOST` files; none when memory runs short."""
_MAPPED_FROM, _PIECE = 16 << 20, 4 << 20
"""Bytes from which a file is copied into its pages, and bytes that a thread copies at a time."""
_POPULATE_READ = 22
"""Of madvise(2), Linux 5.14: map the pages at once. Pages of a shared file are then writable as well, after a third of
the time of MADV_POPULATE_WRITE."""
_mappings = KeptMappings(_MAPPED_FROM, access=ACCESS_WRITE)
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
            else:
                _discard(path)

    def _room(self) -> tuple[int, int]:
        """The bytes and the number of files that the pool can still take."""
        system, names = os.statvfs(self._folder), self._names()
        return system.f_blocks * system.f_frsize // _SHARE - sum(map(_size, names)), max(0, _MOST - len(names))

    def _take_in(self, path: Path, size: int) -> None:
        # the newest of a size comes first: readers and writers may have kept its mapping
        spare = self._folder / f"{size:016x}-{2**63 - time.time_ns():016x}-{os.urandom(4).hex()}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, spare)
            os.chmod(spare, 0o600)

    def write(self, path: Path, buffers: Sequence[Buffer], size: int) -> bool:
        """Write a file of `size` bytes at `path`; returns whether a spare file without readers was available.

        The folder of `path` exists. Raises OSError.
        """
        for name in self._fitting(size):
            spare = self._folder / name
            try:
                os.rename(spare, path)
            except FileNotFoundError:  # another process took it
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if try_lock(descriptor):
                    os.ftruncate(descriptor, size)
                    _overwrite(descriptor, buffers, size)
                    unlock(descriptor)
                    return True
            finally:
                os.close(descriptor)
            os.rename(path, spare)
        return False

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
                    _discard(self._folder / name)

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


def _overwrite(descriptor: int, buffers: Sequence[Buffer], size: int) -> None:
    """Write a spare file. Two threads copy a large one into its pages: the kernel writes a page at a time, and one
    writer at a time.

    A file with missing pages is written by the kernel, which reports full memory as an error, not as a signal.
    """
    if size < _MAPPED_FROM or os.fstat(descriptor).st_blocks * 512 < size:
        write_all(descriptor, buffers)
        return
    mapping, is_new = _mappings.get(descriptor)
    mapping = mapping or map_descriptor(descriptor, size, ACCESS_WRITE)
    if mapping is None:
        write_all(descriptor, buffers)
        return
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np  # copies without the interpreter's lock

    file = np.frombuffer(mapping, np.uint8)

    def copy(piece: tuple[int, list[memoryview]]) -> None:
        at, parts = piece
        if is_new:
            with contextlib.suppress(OSError):  # an older kernel maps page by page
                mapping.madvise(_POPULATE_READ, at, sum(map(len, parts)))
        for part in parts:
            file[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)

    with ThreadPoolExecutor(2) as threads:
        deque(threads.map(copy, _pieces(buffers).items()), maxlen=0)


def _pieces(buffers: Iterable[Buffer]) -> dict[int, list[memoryview]]:
    """Offset of a piece of the file -> its content."""
    pieces: dict[int, list[memoryview]] = {}
    at = 0
    for buffer in buffers:
        rest = memoryview(buffer).cast("B")
        while rest:
            part = rest[: _PIECE - at % _PIECE]
            pieces.setdefault(at - at % _PIECE, []).append(part)
            at, rest = at + len(part), rest[len(part) :]
    return pieces


def _discard(path: Path) -> None:
    """Remove a file. Its memory is free at once, although processes keep mappings of it, unless a view needs it."""
    with contextlib.suppress(FileNotFoundError):
        os.chmod(path, 0o600)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.unlink(path)
            if try_lock(descriptor):
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
