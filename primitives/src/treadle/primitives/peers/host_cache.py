"""Another host's block in this host's shared memory: one process pulls it, all map it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import xxhash

from ..stores.atomic_files import make_folders, write_all
from ..stores.shared_memory import FULL
from ..wire import Connection, TimedOut
from .range_prefetch import allocate

_CHUNK = 1 << 20
"""Bytes received and then written at a time, while they are in the processor's cache."""
_LOCK = ".tmp-{}.lock"
"""A temporary name (see `atomic_files.is_temporary`), which no block has."""


@contextlib.contextmanager
def one_puller(path: Path, deadline: float) -> Iterator[None]:
    """Let one process or thread of this host enter at a time; the death of a process lets the next one in.

    Raises TimedOut when another process has not finished by the deadline.
    """
    make_folders(path.parent)
    lock = path.with_name(_LOCK.format(xxhash.xxh3_64_hexdigest(path.name.encode())))
    descriptor = _locked(lock, deadline)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)
        os.close(descriptor)


def save(connection: Connection, length: int, path: Path, deadline: float) -> memoryview | None:
    """Receive a tail into a file that appears whole at `path`, and return None.

    When shared memory is full, return the bytes in private memory. Raises WireError and OSError.
    """
    descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        private = _receive(connection, length, descriptor, deadline)
        if private is None:
            _appear(descriptor, path)
        return private
    finally:
        os.close(descriptor)


def _appear(descriptor: int, path: Path) -> None:
    """Link an unnamed file at `path`: until then, a process that dies leaves nothing behind (see open(2))."""
    with contextlib.suppress(FileExistsError):  # another process put the block here by other means
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _receive(connection: Connection, length: int, descriptor: int, deadline: float) -> memoryview | None:
    chunk = memoryview(bytearray(min(length, _CHUNK)))
    if not _fits(descriptor, length):
        return _go_on(connection, length, descriptor, 0, chunk[:0], deadline)
    done = 0
    while done < length:
        view = chunk[: length - done]
        connection.receive_into(view, deadline)
        try:
            write_all(descriptor, [view])
        except OSError as error:
            if error.errno not in FULL:
                raise
            return _go_on(connection, length, descriptor, done, view, deadline)
        done += len(view)
    return None


def _go_on(
    connection: Connection, length: int, descriptor: int, done: int, view: memoryview, deadline: float
) -> memoryview:
    """Continue in private memory: `done` bytes are in the file, and `view` follows them."""
    private, start = allocate(length), 0
    while start < done:  # the kernel reads less than 2 GiB at once
        start += os.preadv(descriptor, [private[start:done]], start)
    private[done : done + len(view)] = view
    connection.receive_into(private[done + len(view) :], deadline)
    return private.toreadonly()


def _fits(descriptor: int, length: int) -> bool:
    status = os.fstatvfs(descriptor)
    return status.f_bavail * status.f_frsize > length


def _locked(path: Path, deadline: float) -> int:
    """Return a descriptor that holds the lock at `path`. Retries when the earlier holder removed the file."""
    pause = 0.001
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise TimedOut(f"{path.parent} is being filled by another process", "It may be stuck.") from None
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        os.close(descriptor)


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
