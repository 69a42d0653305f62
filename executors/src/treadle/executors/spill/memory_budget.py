"""The memory budget of one attempt, and the spill files for records that exceed it.

A file never has a name (O_TMPFILE, or unlinked at once). The kernel therefore removes it with the process, however that
ends, and no other process can open it. Its content is decoded without a checksum, because only this process wrote it.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.atomic_files import Buffer, read_all, write_all

_SHARE = 4
_CHUNK = 1 << 20
_CHUNKS = 128


def room_of(memory: int) -> int:
    """Bytes of records that may wait in an attempt with `memory` bytes; 0: no limit.

    It is a quarter. The rest is for derived data (positions, keys, encoded bytes), for user code, and for errors of the
    estimate.
    """
    return max(1, memory // _SHARE) if memory else 0


class Extent(NamedTuple):
    """A run of bytes of a spill file."""

    offset: int
    length: int


class SpillFile:
    """An unlinked temporary file, written at its end and read anywhere."""

    def __init__(self, room: MemoryBudget) -> None:
        import tempfile

        self._room = room
        with room.border():
            self._file = tempfile.TemporaryFile(prefix="treadle-", buffering=0)  # noqa: SIM115  closed by the room
        self._end = 0

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def write(self, buffers: Sequence[Buffer]) -> Extent:
        """Append bytes. Raises the room's error for a StoreError."""
        with self._room.border():
            write_all(self.descriptor, buffers)
        extent = Extent(self._end, sum(map(len, buffers)))
        self._end += extent.length
        self._room.spilled += extent.length
        return extent

    def read(self, extent: Extent) -> bytes:
        with self._room.border():
            return read_all(self.descriptor, extent.offset, extent.length)

    def put(self, values: list[Any]) -> Extent:
        """Append the values as one list. Raises DataError for values that cannot be pickled."""
        return self.write(codec.encode("objects", values))

    def get(self, extent: Extent) -> Any:
        """The list passed to `put`, equal but not identical."""
        return codec.decode(self.read(extent))

    def close(self) -> None:
        """Release the disk space."""
        self._file.close()


def _as_it_is(error: StoreError) -> BaseException:
    return error


class MemoryBudget:
    """The memory budget of one attempt. Not thread-safe."""

    def __init__(self, size: int = 0, raising: Callable[[StoreError], BaseException] = _as_it_is) -> None:
        """`size`: bytes of records that may wait in memory, 0 for no limit. `raising` converts the StoreError of a full
        or broken disk to the exception to raise."""
        self.size = size or sys.maxsize
        self.chunk = min(_CHUNK, -(-self.size // _CHUNKS))
        """Bytes of memory to write, and later to read, at once."""
        self.spilled = 0
        """Bytes written so far."""
        self._raising = raising
        self._files: list[SpillFile] = []

    def full(self, kind: Kind, size: int) -> bool:
        """Whether `size` bytes of records are too many. Columns may use half, because they are copied while held."""
        return size > (self.size if kind == "objects" else self.size // 2)

    def file(self) -> SpillFile:
        """A new file, closed with the room at the latest."""
        file = SpillFile(self)
        self._files.append(file)
        return file

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files.clear()

    @contextmanager
    def border(self) -> Iterator[None]:
        """Convert errors of the file system to the exception of the room."""
        try:
            yield
        except OSError as error:
            failed = _failed(error)
            failed.__cause__ = error
            raise self._raising(failed) from error


def _failed(error: OSError) -> StoreError:
    import tempfile

    folder = tempfile.tempdir or "the folder for temporary files"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"the disk for records that do not fit into memory is full ({folder})",
            "Free space there, start the worker with TMPDIR on a larger disk, or give the stage more `memory`; "
            "then resume.",
        )
    return StoreError(
        f"records that do not fit into memory cannot be written to {folder}: {error.strerror or error}",
        "Check that folder, or start the worker with TMPDIR set to another; then resume.",
    )
