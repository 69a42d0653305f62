"""Reuse of shared memory: writing fresh pages costs four times a copy into kept pages, for readers and the writer.

A **segment** is a file of the host folder that one member writes. When all receivers have a value, the writer takes the
segment back. Once no reader holds a lock, the writer reuses the segment under a new name (see `file_views`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ...errors import StoreError
from ...stores.atomic_files import Buffer
from ...stores.file_views import FileViews, open_locked, try_lock, unlock
from ...stores.kept_mappings import KeptMappings
from ...stores.shared_memory import HostFolder

_KEPT = 3
"""Free segments that a member keeps: receivers may still read the last value while the next is written."""
_READ = 64 << 10
"""Bytes up to which reading is faster than a view."""


class SharedMemorySegment:
    """A segment that this member writes."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError."""
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        self.filled_at = -1
        """Offset of bytes that are already in place when `write` receives them (see `Segments.reserve`); -1: none."""
        self._memory: memoryview | None = None

    def try_lock(self) -> bool:
        """Return whether no reader holds a lock; then the segment stays locked until `write` is done."""
        return try_lock(self.descriptor)

    @property
    def memory(self) -> memoryview:
        """The writable memory; only for the holder of the lock."""
        if self._memory is None:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            self._memory = memoryview(mmap.mmap(self.descriptor, self.size, flags=flags))
        return self._memory

    def rename(self, path: Path) -> None:
        """Rename it before any write: the old name must never show other bytes."""
        os.rename(self.path, path)
        self.path = path

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Write other bytes into it, and unlock it."""
        offset = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if offset != self.filled_at:
                self.memory[offset : offset + len(view)] = view
            offset += len(view)
        self.unlock()

    def unlock(self) -> None:
        self.filled_at = -1
        unlock(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()


class Segments:
    """The segments that one member writes, and views of segments that it reads. Thread-safe."""

    def __init__(self, host: HostFolder) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._free: list[SharedMemorySegment] = []
        self._written: dict[Path, SharedMemorySegment] = {}
        self._views = FileViews(KeptMappings(kept_from=_READ, most=sys.maxsize))

    # -- for the writer ----------

    def write(self, name: str, buffers: Sequence[Buffer], into: SharedMemorySegment | None = None) -> None:
        """Write a block, as `HostFolder.put` does. `into`: a reserved segment that already holds some of the bytes."""
        path = self._host.path(name)
        segment = into or self._take(sum(map(len, buffers)))
        if segment is None or not self._renamed(segment, path):
            self._put_new(name, buffers)
            return
        segment.write(buffers)
        with self._lock:
            self._written[path] = segment

    def _renamed(self, segment: SharedMemorySegment, path: Path) -> bool:
        try:
            segment.rename(path)
        except OSError:  # another process has removed the run
            segment.close()
            return False
        return True

    def reserve(self, size: int, filled_at: int) -> SharedMemorySegment | None:
        """Return a free segment that is large enough, if any: the buffer that `write` puts at `filled_at` may be made
        in place.

        The caller then passes it to `write` or to `release`.
        """
        segment = self._take(size)
        if segment is None or not self._renamed(segment, segment.path.with_name(f"{segment.path.name}+")):
            return None
        segment.filled_at = filled_at
        return segment

    def release(self, segment: SharedMemorySegment) -> None:
        """The reserved segment was not needed."""
        segment.unlock()
        with self._lock:
            self._free.append(segment)

    def _put_new(self, name: str, buffers: Sequence[Buffer]) -> None:
        try:
            self._host.put(name, buffers)
        except StoreError:  # shared memory is full
            if not self._let_go():
                raise
            self._host.put(name, buffers)

    def _take(self, size: int) -> SharedMemorySegment | None:
        """Return the smallest free segment that is large enough, locked; None without one."""
        with self._lock:
            for segment in sorted(self._free, key=lambda one: one.size):
                if segment.size >= size and segment.try_lock():
                    self._free.remove(segment)
                    return segment
        return None

    def _let_go(self) -> bool:
        """Remove all free segments; returns whether there were any."""
        with self._lock:
            free, self._free = self._free, []
        for segment in free:
            segment.remove()
        return bool(free)

    def take_back(self, name: str) -> None:
        """All receivers have this block: its segment may be reused once no reader holds a lock. Best effort."""
        path = self._host.path(name)
        with contextlib.suppress(OSError), self._lock:
            self._free.append(self._written.pop(path) if path in self._written else SharedMemorySegment(path))
            if len(self._free) > _KEPT:
                self._free.pop(0).remove()

    # -- for readers ----------

    def read(self, name: str, offset: int, length: int) -> Buffer | None:
        """Return bytes of a block that another member of this host wrote; None when the block no longer exists.

        The bytes are not checked: a member of the run wrote them whole, and reported so over an authenticated
        connection.
        """
        path = self._host.path(name)
        with contextlib.suppress(FileNotFoundError):
            if length < _READ:
                return _read(path, offset, length)
            return self._views.view(path)[offset : offset + length]
        return None

    def close(self) -> None:
        """Free the kept segments. Views stay valid, and unread values of this member stay readable."""
        self._let_go()
        with self._lock:
            for segment in self._written.values():
                segment.close()
            self._written.clear()
        self._views.close()


def _read(path: Path, offset: int, length: int) -> bytes:
    descriptor = open_locked(path)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)
