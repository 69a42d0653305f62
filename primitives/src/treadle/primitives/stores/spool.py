"""Large parts of remote objects, copied piece by piece into a file without a name and mapped from there.

They take no memory of the process, like files of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from mmap import ACCESS_READ, mmap

from .atomic_files import Buffer, write_all
from .store_errors import border

SPOOLED_FROM = 64 << 20
"""Bytes."""
AT_ONCE = 8 << 20
"""Bytes that are in memory during the transfer."""


class Spool(mmap):
    """A mapping of bytes that are not checked yet."""


def fetch_range(
    read: Callable[[int, int], Buffer], start: int, length: int, spooled_from: int = SPOOLED_FROM
) -> Buffer:
    """`length` bytes from `start`, or fewer where the object ends; `read(start, length)` gets some of them.

    Raises the errors of `read`, and StoreError when the disk for temporary files is full.
    """
    return read(start, length) if length < spooled_from else spooled(_ranges(read, start, length))


def _ranges(read: Callable[[int, int], Buffer], start: int, length: int) -> Iterator[Buffer]:
    stop = start + length
    while start < stop and (data := read(start, min(AT_ONCE, stop - start))):
        yield data
        start += len(data)


def spooled(pieces: Iterable[Buffer]) -> Buffer:
    """Join the pieces. Raises their errors, and StoreError when the disk for temporary files is full."""
    import tempfile

    with border(f"file://{tempfile.gettempdir()}"), tempfile.TemporaryFile(prefix="treadle-", buffering=0) as file:
        size = 0
        for piece in pieces:
            write_all(file.fileno(), [piece])
            size += len(piece)
        return memoryview(Spool(file.fileno(), size, access=ACCESS_READ)) if size else b""
