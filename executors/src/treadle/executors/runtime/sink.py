"""The result of a partition at the end of its program: parts in memory, or in a file if they do not fit."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.read_only import sealed
from treadle.primitives.encoding.references import Kind
from treadle.primitives.shuffling.partitioning import bytes_of_rows, rows_between, rows_of_a_chunk, split_evenly

from ..operations.attempt_state import Attempt
from ..operations.keys import keyed
from ..operations.record_flow import EXPANSION, Flow, whole, within
from ..program import Cut, Merge, Scatter, Tail
from ..spill.memory_budget import MemoryBudget
from ..spill.part_spill import Parts, SpilledPart, write_each
from ..spill.size_estimate import memory_of
from .combiner import combined
from .partition_output import boundaries_of, distribute, parts_of, rows_of, targets_of
from .shuffle_index import Bundle, bundle, by_target, kind_of

_BATCH = 8
"""A batch to be cut takes at most this fraction of the room."""


class Made(NamedTuple):
    """The result of a partition."""

    kind: Kind
    """Kind of the parts."""
    parts: Sequence[Any] | Sequence[SpilledPart]
    spilled: bool
    rows: int
    """Records in the parts."""
    whole_kind: Kind
    whole: Iterable[Any]
    """The partition before it was cut, in pieces, if requested."""
    whole_rows: int


def make(tail: Tail, flow: Flow, attempt: Attempt, *, want_whole: bool) -> Made:
    """Apply the tail. Raises the errors of consuming the flow, DataError, UsageError, StageFailed."""
    if isinstance(tail, Scatter) and tail.combine and not want_whole:
        flow, tail = Flow("objects", combined(tail, flow, attempt)), msgspec.structs.replace(tail, combine="")
    value, pieces = _merged_within(flow, attempt.room) if isinstance(tail, Merge) else within(flow, attempt.room.size)
    if pieces is not None:
        return _Spilling(tail, flow.kind, attempt, want_whole=want_whole).made(pieces)
    attempt.finish()
    kind, parts = parts_of(tail, flow.kind, value, attempt)
    return Made(kind, parts, False, rows_of(tail, kind, parts), flow.kind, (value,), codec.rows(flow.kind, value))


def _merged_within(flow: Flow, room: MemoryBudget) -> tuple[Any, Iterator[Any] | None]:
    """Like `within`, for bundles: counts their content, which is still encoded."""
    bundles: list[Bundle] = whole(flow)
    size = sum(len(memoryview(data)) * EXPANSION[kind] for kind, _, data in bundles)
    return (bundles, None) if size <= room.size else (None, iter((bundles,)))


class _Spilling:
    """Writes a partition that does not fit into memory to files."""

    def __init__(self, tail: Tail, kind: Kind, attempt: Attempt, *, want_whole: bool) -> None:
        self._tail, self._kind, self._attempt, self._room = tail, kind, attempt, attempt.room
        cuts_up = isinstance(tail, Scatter | Cut | Merge)
        self._whole = Parts(kind, 1, attempt.room) if want_whole and cuts_up else None

    def made(self, pieces: Iterator[Any]) -> Made:
        """Consume the pieces."""
        attempt = self._attempt
        kind, parts, rows = self._parts(map(sealed, pieces) if self._kind == "objects" else pieces)
        attempt.finish()
        (kept,) = self._whole.done() if self._whole is not None else parts[:1]
        return Made(kind, parts, True, rows, self._kind, kept, kept.rows)

    def _parts(self, pieces: Iterator[Any]) -> tuple[Kind, list[SpilledPart], int]:
        tail, kind = self._tail, self._kind
        if isinstance(tail, Merge):
            self._attempt.stage = tail.stage
            return _merge(next(pieces), self._room)
        if isinstance(tail, Scatter):
            self._attempt.stage = tail.stage
            return self._scattered(tail, _batches(kind, self._kept(pieces), self._room.size // _BATCH))
        if isinstance(tail, Cut):
            return _counted(kind, write_each(kind, self._chunks(tail, self._kept(pieces)), self._room))
        parts = Parts(kind, 1, self._room)
        for piece in pieces:
            parts.add([piece], memory_of(kind, piece))
        return _counted(kind, parts.done())

    def _chunks(self, tail: Cut, pieces: Iterator[Any]) -> Iterator[Any]:
        """The chunks that partitioning.cut makes, in order."""
        kind, most, size = self._kind, tail.max_items, tail.max_bytes
        if kind == "objects":
            return _record_chunks(pieces, most, size)
        if kind == "array" or not size:
            return _row_chunks(kind, pieces, most, size)
        part, total = self._gathered(pieces)
        return _row_chunks(kind, iter(part), rows_of_a_chunk(part.rows, total, most, size), 0)

    def _gathered(self, pieces: Iterator[Any]) -> tuple[SpilledPart, int]:
        """(all pieces, the bytes of their rows). The total is known only at the end if rows differ in length."""
        parts, size = Parts(self._kind, 1, self._room), 0
        for piece in pieces:
            parts.add([piece], memory_of(self._kind, piece))
            size += bytes_of_rows(self._kind, piece)
        (part,) = parts.done()
        return part, size

    def _kept(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """The pieces; a copy is kept if they are needed again."""
        for piece in pieces:
            if self._whole is not None:
                self._whole.add([piece], memory_of(self._kind, piece))
            yield piece

    def _scattered(self, tail: Scatter, pieces: Iterator[Any]) -> tuple[Kind, list[SpilledPart], int]:
        kind, room = self._kind, self._room
        if tail.combine:
            kind, pieces = "objects", combined(tail, Flow(kind, pieces), self._attempt)
        boundaries = boundaries_of(tail, self._attempt)
        parts, start = Parts(kind, tail.partitions, room), 0
        for keys, piece in keyed(tail.by, tail.stage, kind, pieces, self._attempt):
            targets = targets_of(tail, keys, boundaries, start)
            start += codec.rows(kind, piece)
            parts.add(distribute(kind, piece, targets, tail.partitions), memory_of(kind, piece))
        kind, done, rows = _counted(kind, parts.done())
        if not tail.groups:
            return kind, done, rows
        bounds = split_evenly(tail.partitions, tail.groups)
        bundles = ([bundle(kind, [part.value() for part in done[start:stop]])] for start, stop in bounds)
        return "objects", write_each("objects", bundles, room), rows


def _counted(kind: Kind, parts: list[SpilledPart]) -> tuple[Kind, list[SpilledPart], int]:
    return kind, parts, sum(part.rows for part in parts)


def _merge(bundles: Sequence[Bundle], room: MemoryBudget) -> tuple[Kind, list[SpilledPart], int]:
    """See shuffle_index.merge."""
    kind = kind_of(bundles)
    parts = Parts(kind, len(bundles[0][1]), room)
    for its, counts, data in bundles:
        if its == kind:
            value = codec.decode(data)
            parts.add(by_target(kind, counts, value), memory_of(kind, value))
    return _counted(kind, parts.done())


def _batches(kind: Kind, pieces: Iterable[Any], size: int) -> Iterator[Any]:
    """Join the pieces to batches of at least `size` bytes, because cutting a piece into many parts has a fixed cost."""
    held: list[Any] = []
    held_size = 0
    for piece in pieces:
        held.append(piece)
        held_size += memory_of(kind, piece)
        if held_size >= size:
            yield codec.concat(kind, held)
            held, held_size = [], 0
    if held:
        yield codec.concat(kind, held)


def _record_chunks(pieces: Iterable[list[Any]], max_items: int, max_bytes: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for piece in pieces:
        for record in piece:
            length = len(pickle.dumps(record, protocol=5)) if max_bytes else 0
            if chunk and ((max_bytes and size + length > max_bytes) or len(chunk) == max_items):
                yield chunk
                chunk, size = [], 0
            chunk.append(record)
            size += length
    yield chunk


def _row_chunks(kind: Kind, pieces: Iterable[Any], max_items: int, max_bytes: int) -> Iterator[Any]:
    """Chunks of rows that all have the same number of bytes."""
    held: list[Any] = []
    count = step = 0
    for piece in pieces:
        rows = codec.rows(kind, piece)
        if not rows:
            continue
        step = step or rows_of_a_chunk(rows, bytes_of_rows(kind, piece), max_items, max_bytes)
        held.append(piece)
        count += rows
        while count >= step:
            value = codec.concat(kind, held)
            yield rows_between(kind, value, 0, step)
            held, count = [rows_between(kind, value, step, count)], count - step
    if count:
        yield codec.concat(kind, held)
