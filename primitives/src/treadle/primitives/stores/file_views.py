"""Views of files whose memory is written again after their removal (see `page_pool`): no view ever changes.

A reader holds a shared lock (flock) on the file while any view of it lives; the kernel releases the lock of a process
that dies. A writer gives the file a new name and takes the exclusive lock before it writes. So a name always means the
same bytes. Mappings of large files are kept without a lock: mapping their pages costs as much as a sum over them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from mmap import mmap

from .atomic_files import descriptor_holders, map_open_file, read_all
from .kept_mappings import KeptMappings

LEAST = 512 << 10
"""Bytes from which the memory of a block file is written again."""


class FileViews:
    """Views of files, for one process. Thread-safe."""

    def __init__(self, mappings: KeptMappings) -> None:
        self._mappings = mappings

    def view(self, path: str | os.PathLike[str]) -> memoryview:
        """Return the bytes of a file, read-only and not copied unless `map_file` would copy them.

        Raises OSError; FileNotFoundError also for a file that has just lost its name.
        """
        descriptor = open_locked(path)
        try:
            mapping, _ = self._mappings.get(descriptor)
            if mapping is None:
                return map_open_file(descriptor)  # its mapping holds the lock as long as it lives
            return self._view(mapping, descriptor)
        finally:
            os.close(descriptor)

    def _view(self, mapping: mmap, descriptor: int) -> memoryview:
        import numpy as np  # its arrays can be the target of a weak reference, and refer to read-only memory

        lock, pages = _Lock(os.dup(descriptor)), np.frombuffer(mapping, np.uint8)
        weakref.finalize(pages, self._end, lock).atexit = False
        return pages.data

    def _end(self, lock: _Lock) -> None:
        if lock.release():
            self._mappings.forget_removed()

    def close(self) -> None:
        """Forget the mappings; views stay valid."""
        self._mappings.close()


class _Lock:
    """The shared lock of a view."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        descriptor_holders.add(self)

    def release(self) -> bool:
        """Returns whether the file was removed."""
        removed = not os.fstat(self._descriptor).st_nlink
        os.close(self._descriptor)
        return removed


def open_locked(path: str | os.PathLike[str], flags: int = 0) -> int:
    """Open a file, which no process writes until the descriptor is closed. Raises the errors of `FileViews.view`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _check_name(descriptor, path)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):  # it is being written, so it has lost its name
            raise _gone(path) from error
        raise
    return descriptor


def read_file(path: str | os.PathLike[str], offset: int, length: int) -> bytes:
    """Return bytes of a block file, fewer where it ends. Raises the errors of `FileViews.view`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = read_all(descriptor, offset, length)
        if len(data) < length or os.fstat(descriptor).st_size >= LEAST:
            _check_name(descriptor, path)  # it had its name while it was read: a writer takes the name first
        return data
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock the file to write it. Return False if a process reads it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock at once: a forked child may hold the descriptor longer than this process."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _check_name(descriptor: int, path: str | os.PathLike[str]) -> None:
    if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
        raise _gone(path)


def _gone(path: str | os.PathLike[str]) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "The file was removed", os.fspath(path))
