"""Parts of a block that do not fit into memory together: encoded piece by piece into a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.shuffling.partitioning import rows_between
from treadle.primitives.stores.atomic_files import Buffer

from .memory_budget import Extent, MemoryBudget, SpillFile

_PIECE = 4 << 20
"""Approximate bytes of memory of a piece, which a reader of a part must hold at once."""


class SpilledPart:
    """One encoded part. Its pieces can be iterated repeatedly."""

    def __init__(self, kind: Kind, file: SpillFile, extents: Sequence[Extent], rows: int) -> None:
        self.kind = kind
        self.rows = rows
        self._file, self._extents = file, extents

    @property
    def lengths(self) -> list[int]:
        """Bytes of each piece."""
        return [extent.length for extent in self._extents]

    def encoded(self) -> Iterator[bytes]:
        """The pieces, each encoded as a part by itself."""
        return map(self._file.read, self._extents)

    def __iter__(self) -> Iterator[Any]:
        """The pieces, decoded."""
        return map(codec.decode, self.encoded())

    def value(self) -> Any:
        """The whole part in memory."""
        return codec.concat(self.kind, list(self))


class SpilledBytes:
    """Bytes spilled to a file of their own. They can be iterated repeatedly."""

    def __init__(self, room: MemoryBudget, buffers: Iterable[Buffer]) -> None:
        self._file = room.file()
        self._extents = [self._file.write([buffer]) for buffer in buffers]

    def __iter__(self) -> Iterator[bytes]:
        return map(self._file.read, self._extents)


def write_each(kind: Kind, values: Iterable[Any], room: MemoryBudget) -> list[SpilledPart]:
    """Write each value as a part of one piece. Raises DataError for records that cannot be encoded."""
    file = room.file()
    written = ((file.write(codec.encode(kind, value)), codec.rows(kind, value)) for value in values)
    return [SpilledPart(kind, file, [extent], rows) for extent, rows in written]


class Parts:
    """Gathers the records of each part, and writes the waiting ones when the room is full."""

    def __init__(self, kind: Kind, count: int, room: MemoryBudget) -> None:
        self._kind = kind
        self._room = room
        self._file = room.file()
        self._held: list[list[Any]] = [[] for _ in range(count)]
        self._extents: list[list[Extent]] = [[] for _ in range(count)]
        self._rows = [0] * count
        self._size = 0
        self._sample: Any = None

    def add(self, parts: Sequence[Any], size: int) -> None:
        """Add records to each of the parts, after the earlier ones; `size`: bytes that they take in memory together.

        Raises DataError for records that cannot be encoded, and for columns whose types differ from earlier ones.
        """
        for held, part in zip(self._held, parts, strict=True):
            if codec.rows(self._kind, part):
                held.append(part)
        self._check(next((part for part in parts if codec.rows(self._kind, part)), parts[0]))
        self._size += size
        if self._room.full(self._kind, self._size):
            self._flush()

    def done(self) -> list[SpilledPart]:
        """The parts, in order. Called once, at the end."""
        self._flush()
        for extents in self._extents:
            if not extents:
                extents.append(self._file.write(codec.encode(self._kind, rows_between(self._kind, self._sample, 0, 0))))
        return [
            SpilledPart(self._kind, self._file, extents, rows)
            for extents, rows in zip(self._extents, self._rows, strict=True)
        ]

    def _check(self, part: Any) -> None:
        """Check that pieces of one part can be joined, so that its reader cannot fail."""
        one = rows_between(self._kind, part, 0, 1)
        if self._sample is None or not codec.rows(self._kind, self._sample):
            self._sample = one
        elif self._kind != "objects":
            codec.concat(self._kind, [self._sample, one])

    def _flush(self) -> None:
        total = sum(codec.rows(self._kind, piece) for held in self._held for piece in held)
        rows = max(1, total * min(_PIECE, self._room.size) // max(self._size, 1))
        self._size = 0
        for target, held in enumerate(self._held):
            if held:
                self._write(target, codec.concat(self._kind, held), rows)
                held.clear()

    def _write(self, target: int, value: Any, rows: int) -> None:
        count = codec.rows(self._kind, value)
        self._rows[target] += count
        for start in range(0, count, rows):
            piece = rows_between(self._kind, value, start, min(start + rows, count))
            self._extents[target].append(self._file.write(codec.encode(self._kind, piece)))
