"""Large parts of objects that are far away, brought range by range into a file without a name, and mapped from there.

So they cost no memory of the process, as if they had been on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import ACCESS_READ, mmap

from .store_errors import border
from .whole_files import Buffer, write_all

SPOOLED_FROM = 64 << 20
"""Bytes."""
_RANGE = 8 << 20


class Spool(mmap):
    """A mapping of bytes that nobody has checked yet."""


def fetch_range(read: Callable[[int, int], bytes], start: int, length: int) -> Buffer:
    """`length` bytes from `start`, or fewer where the object ends; `read(start, length)` gets some of them.

    Raises what `read` does, StoreError when the disk for temporary files is full.
    """
    return read(start, length) if length < SPOOLED_FROM else _spooled(read, start, length)


def _spooled(read: Callable[[int, int], bytes], start: int, length: int) -> Buffer:
    import tempfile

    with border(f"file://{tempfile.gettempdir()}"), tempfile.TemporaryFile(prefix="treadle-", buffering=0) as file:
        done = 0
        while done < length and (data := read(start + done, min(_RANGE, length - done))):
            write_all(file.fileno(), [data])
            done += len(data)
        return memoryview(Spool(file.fileno(), done, access=ACCESS_READ)) if done else b""
