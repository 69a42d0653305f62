"""Shared memory that is used again: fresh pages cost four times the copy into kept ones, for readers as for the writer.

A **segment** is a file of the host folder that one member writes. Whoever looks at a value in it holds a shared lock on
the file (flock) for as long as any view of it lives; the kernel ends the lock of a process that dies. When everybody
has a value, its writer takes the segment back, and writes into it again, under an exclusive lock and another name,
once nobody looks any more. So a name means the same bytes for ever, and views never change.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from ...errors import StoreError
from ...stores.atomic_files import Buffer
from ...stores.shared_memory import HostFolder

_KEPT = 3
"""Segments a member keeps: receivers may still look at the last value while the next is written."""
_READ = 64 << 10
"""Bytes up to which reading is faster than a view."""
_MAPPINGS = 64
"""Of segments that others write; kept, so that their pages need not be mapped again."""


class Segment:
    """One that this member writes."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError."""
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        self.filled_at = -1
        """Where bytes are in place already that `write` gets with all others (see `Segments.reserve`)."""
        self._memory: memoryview | None = None

    def try_lock(self) -> bool:
        """Whether nobody looks at it; then nobody will before `write` is done."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def memory(self) -> memoryview:
        """Writable; for who has locked it."""
        if self._memory is None:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            self._memory = memoryview(mmap.mmap(self.descriptor, self.size, flags=flags))
        return self._memory

    def rename(self, path: Path) -> None:
        """Before anything is written: what is found under the old name must be what it was."""
        os.rename(self.path, path)
        self.path = path

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Put other bytes into it, and unlock it."""
        offset = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if offset != self.filled_at:
                self.memory[offset : offset + len(view)] = view
            offset += len(view)
        self.unlock()

    def unlock(self) -> None:
        self.filled_at = -1
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self.descriptor)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()


class Segments:
    """Those that one member writes, and views of those it reads. Thread-safe."""

    def __init__(self, host: HostFolder) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._free: list[Segment] = []
        self._written: dict[Path, Segment] = {}
        self._mappings: OrderedDict[tuple[int, int], tuple[int, mmap.mmap]] = OrderedDict()
        self._views: set[int] = set()
        """Descriptors, each with its lock."""

    # -- of the writer ----------

    def write(self, name: str, buffers: Sequence[Buffer], into: Segment | None = None) -> None:
        """As `HostFolder.put`. `into`: a reserved segment, where some of the bytes are in place already."""
        path = self._host.path(name)
        segment = into or self._take(sum(map(len, buffers)))
        if segment is None or not self._renamed(segment, path):
            self._put_new(name, buffers)
            return
        segment.write(buffers)
        with self._lock:
            self._written[path] = segment

    def _renamed(self, segment: Segment, path: Path) -> bool:
        try:
            segment.rename(path)
        except OSError:  # somebody has removed the run
            segment.close()
            return False
        return True

    def reserve(self, size: int, filled_at: int) -> Segment | None:
        """A kept one, if there is one that fits: what `write` will put at `filled_at` may be made in place.

        To be written into then, or to be returned.
        """
        segment = self._take(size)
        if segment is None or not self._renamed(segment, segment.path.with_name(f"{segment.path.name}+")):
            return None
        segment.filled_at = filled_at
        return segment

    def release(self, segment: Segment) -> None:
        """It was reserved in vain."""
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

    def _take(self, size: int) -> Segment | None:
        """The smallest free one that is large enough, locked."""
        with self._lock:
            for segment in sorted(self._free, key=lambda one: one.size):
                if segment.size >= size and segment.try_lock():
                    self._free.remove(segment)
                    return segment
        return None

    def _let_go(self) -> bool:
        """Of the memory that is kept; whether there was any."""
        with self._lock:
            free, self._free = self._free, []
        for segment in free:
            segment.remove()
        return bool(free)

    def take_back(self, name: str) -> None:
        """Everybody has what is in this block: it may be written again once nobody looks. Best effort."""
        path = self._host.path(name)
        with contextlib.suppress(OSError), self._lock:
            self._free.append(self._written.pop(path) if path in self._written else Segment(path))
            if len(self._free) > _KEPT:
                self._free.pop(0).remove()

    # -- of readers ----------

    def read(self, name: str, offset: int, length: int) -> Buffer | None:
        """Bytes of a block that another member of this host wrote; None when there is no such block any more.

        They are not checked: a member of the run put them there whole, and said so over an authenticated connection.
        """
        path = self._host.path(name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        view = None
        try:
            if not _lock_shared(descriptor, path):
                return None
            if length < _READ or not self._may_view():
                return os.pread(descriptor, length, offset)
            view = self._view(path, descriptor)
            return view[offset : offset + length]
        finally:
            if view is None:
                os.close(descriptor)

    def _may_view(self) -> bool:
        """Each view holds a descriptor; half of those allowed stay free for everything else."""
        return len(self._views) < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def _view(self, path: Path, descriptor: int) -> memoryview:
        """The descriptor, and with it the lock, is held as long as anything refers to this memory."""
        mapping = self._mapping(path, descriptor)
        holder = (ctypes.c_ubyte * len(mapping)).from_buffer(mapping)
        self._views.add(descriptor)
        weakref.finalize(holder, _end_view, self._views, descriptor).atexit = False
        return memoryview(holder).cast("B").toreadonly()

    def _mapping(self, path: Path, descriptor: int) -> mmap.mmap:
        status = os.fstat(descriptor)
        key = (status.st_ino, status.st_size)
        with self._lock:
            if key in self._mappings:
                self._mappings.move_to_end(key)
                return self._mappings[key][1]
            self._forget_removed()
            unlocked = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # the lock must not last as long as the mapping
            mapping = mmap.mmap(unlocked, status.st_size)
            self._mappings[key] = (unlocked, mapping)
            return mapping

    def _forget_removed(self) -> None:
        """Memory that its writer gave up is given back when the last mapping of it ends."""
        for key, (descriptor, _) in list(self._mappings.items()):
            if not os.fstat(descriptor).st_nlink or len(self._mappings) >= _MAPPINGS:
                del self._mappings[key]
                os.close(descriptor)

    def close(self) -> None:
        """Give back what is kept. Views stay valid, and so does what others have still to read."""
        self._let_go()
        with self._lock:
            for segment in self._written.values():
                segment.close()
            for descriptor, _ in self._mappings.values():
                os.close(descriptor)
            self._written.clear()
            self._mappings.clear()


def _end_view(views: set[int], descriptor: int) -> None:
    views.discard(descriptor)
    os.close(descriptor)


def _lock_shared(descriptor: int, path: Path) -> bool:
    """Whether this file has its name still, and keeps it while it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
