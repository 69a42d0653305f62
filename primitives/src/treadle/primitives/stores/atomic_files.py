"""Files that appear whole or not at all: written beside their name, then linked or renamed into place.

Shared by file stores (durable) and the host's shared memory (not durable, faster).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from ..errors import UsageError

Buffer: TypeAlias = bytes | bytearray | memoryview
Reuse: TypeAlias = Callable[[Path, Iterable[Buffer]], bool]
"""Moves an older file to a path and overwrites it with the content; False: it has no such file."""
_TEMPORARY = ".tmp-"
_MAX_VECTORS = 512
_MAX_BYTES = 1 << 30
_NO_MAPPING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENODEV)


def check_name(name: str) -> str:
    """Return `name` if it is a relative path without empty, `.` or `..` steps; raises UsageError otherwise."""
    steps = name.split("/")
    if not name or "\0" in name or any(step in ("", ".", "..") or step.startswith(_TEMPORARY) for step in steps):
        raise UsageError(f"{name!r} is not an object name", "Use steps separated by single slashes, such as a/b.")
    return name


def is_temporary(name: str) -> bool:
    """Return whether the name belongs to a file whose writer ended before it was complete."""
    return name.startswith(_TEMPORARY)


def temporary_beside(path: Path) -> Path:
    """Return a temporary name in the folder of `path`."""
    return path.with_name(f"{_TEMPORARY}{os.urandom(8).hex()}")


def make_folders(folder: Path, mode: int = 0o700) -> list[Path]:
    """Create `folder` and its missing parents; returns the folders that have a new entry. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(new, mode)
    return [new.parent for new in missing]


def remove_folder(folder: Path) -> None:
    """Remove the folder with all its content, even while another process removes it too. Raises OSError."""
    from shutil import rmtree

    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            rmtree(folder)


def sync_folder(folder: Path) -> None:
    """Make the entries of `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, buffers: Iterable[Buffer], *, durable: bool, reuse: Reuse | None = None) -> None:
    """Write a file of mode 0600 at `path`, replacing an existing file. Raises OSError."""
    with _temporary(path, buffers, durable, reuse) as temporary:
        os.rename(temporary, path)


def create_file(path: Path, buffers: Iterable[Buffer], mode: int = 0o600, *, reuse: Reuse | None = None) -> bool:
    """Write a durable file; False if a file exists already, which is durable then, too. Raises OSError."""
    created = True
    with _temporary(path, buffers, True, reuse, mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            created = False
        os.unlink(temporary)
    return created


@contextlib.contextmanager
def _temporary(
    path: Path, buffers: Iterable[Buffer], durable: bool, reuse: Reuse | None = None, mode: int = 0o600
) -> Iterator[Path]:
    """Write a complete file beside `path`, for the caller to move; it is removed when anything fails.

    Every folder with a new entry is synced at the end: on most file systems only the first sync costs time.
    """
    temporary = temporary_beside(path)
    changed = [path.parent]
    try:
        if reuse is None or not reuse(temporary, buffers):
            _write_new(temporary, mode, changed, buffers, durable)
        yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    for folder in changed if durable else ():
        sync_folder(folder)


def _write_new(path: Path, mode: int, changed: list[Path], buffers: Iterable[Buffer], durable: bool) -> None:
    fill(_open_new(path, mode, changed), buffers, durable=durable)


def fill(descriptor: int, buffers: Iterable[Buffer], *, durable: bool) -> None:
    """Write the content of a file, and close it. Raises OSError."""
    try:
        write_all(descriptor, buffers)
        if durable:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _open_new(path: Path, mode: int, changed: list[Path]) -> int:
    """A new file, and the folders that it needs; those with a new entry are added to `changed`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileNotFoundError:
        changed += make_folders(path.parent)
        return os.open(path, flags, mode)


def write_all(descriptor: int, buffers: Iterable[Buffer]) -> None:
    """Write every byte, in vectors of bounded number and size; the kernel may accept fewer bytes than offered.

    If `buffers` is not a sequence, each buffer is written before the next is requested.
    """
    if not isinstance(buffers, Sequence):
        for buffer in buffers:
            write_all(descriptor, [buffer])
        return
    pending = [view for buffer in buffers if (view := memoryview(buffer).cast("B"))]
    first = 0
    while first < len(pending):
        written = os.writev(descriptor, _bounded(pending, first))
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]


def _bounded(pending: Sequence[memoryview], first: int) -> list[memoryview]:
    """The next vectors: at least one, at most `_MAX_VECTORS` and `_MAX_BYTES`."""
    vectors, room = [], _MAX_BYTES
    for view in pending[first : first + _MAX_VECTORS]:
        vectors.append(view[:room])
        room -= len(view)
        if room <= 0:
            break
    return vectors


def read_range(path: str | Path, start: int, length: int) -> bytes:
    """At most `length` bytes from `start`: fewer where the file ends. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_all(descriptor, start, length)
    finally:
        os.close(descriptor)


def read_all(descriptor: int, start: int, length: int) -> bytes:
    """Read like `read_range`, from an open file; the kernel may return fewer bytes than requested."""
    pieces = [os.pread(descriptor, length, start)]
    while pieces[-1] and (missing := length - sum(map(len, pieces))):
        pieces.append(os.pread(descriptor, missing, start + length - missing))
    return b"".join(pieces)


def map_file(path: str | Path) -> memoryview:
    """Map the bytes of a file read-only, or return a private copy of them.

    A copy is made of a file that another user may change after it was checked, and when the process has no
    descriptor or mapping to spare. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return map_open_file(descriptor)
    finally:
        os.close(descriptor)


def map_open_file(descriptor: int) -> memoryview:
    """Do what `map_file` does with an open file."""
    status = os.fstat(descriptor)
    mapping = map_descriptor(descriptor, status.st_size) if is_private(status) and status.st_size else None
    return memoryview(mapping or read_all(descriptor, 0, status.st_size))


def is_private(status: os.stat_result) -> bool:
    """Return whether no other user, except the superuser, can change the file."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


descriptor_holders: weakref.WeakSet[object] = weakref.WeakSet()
"""Mappings and other objects that each hold a descriptor."""


def can_hold_descriptor() -> bool:
    """Return whether one more object may hold a descriptor: half of the allowed ones stay free for other uses."""
    return len(descriptor_holders) < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def map_descriptor(descriptor: int, size: int, access: int = mmap.ACCESS_READ) -> mmap.mmap | None:
    """A mapping, which holds its own descriptor, or None. Raises OSError."""
    if not can_hold_descriptor():
        return None
    try:
        mapping = mmap.mmap(descriptor, size, access=access)
    except OSError as error:
        if error.errno in _NO_MAPPING:
            return None
        raise
    descriptor_holders.add(mapping)
    return mapping
