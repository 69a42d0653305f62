"""A partition on its way through a chain of operations: parts of one kind, produced on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from msgspec import Struct

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.read_only import sealed
from treadle.primitives.encoding.references import Kind
from treadle.primitives.shuffling.partitioning import rows_between

from ..spill.size_estimate import memory_of

_BATCH_BYTES = 1 << 20
_BATCH_RECORDS = 1024
EXPANSION: dict[Kind, int] = {"objects": 16, "table": 2, "array": 2}
"""Maximum bytes of memory per encoded byte, except for values that rarely occur in large numbers (such as empty
lists)."""
_SAMPLED = 4096
"""Maximum records between two measurements of their size. The interval never exceeds the number of earlier records,
because the first ones may be atypical."""
_NONE: Any = object()


class Flow(Struct):
    """Records as a sequence of parts (lists, tables or arrays), which can be iterated once."""

    kind: Kind
    parts: Iterable[Any]
    sources: Callable[[], Iterator[Flow]] | None = None
    """The source partitions one by one, instead of `parts`; None: there is only one, or they are unknown."""
    encoded: int = 0
    """Bytes of their encoded form; 0: unknown."""
    inputs: tuple[Flow, ...] = ()
    """The inputs of a shuffle, for a reduce that reads them separately; `parts` is then empty."""


def objects(records: list[Any]) -> Flow:
    return Flow("objects", (records,))


def whole(flow: Flow) -> Any:
    """The partition as one list, table or array. A list may belong to a block: do not change it."""
    parts = iter(flow.parts)
    first = next(parts, _NONE)
    second = next(parts, _NONE)
    if second is _NONE:
        return [] if first is _NONE else first
    if flow.kind != "objects":
        return codec.concat(flow.kind, [first, second, *parts])
    gathered = first + second
    for part in parts:
        gathered += part
    return gathered


def within(flow: Flow, room: int) -> tuple[Any, Iterator[Any] | None]:
    """(the partition as returned by `whole`, None) if it takes at most `room` bytes, else (None, its parts)."""
    if 0 < flow.encoded <= room // EXPANSION[flow.kind]:
        return whole(flow), None
    held: list[Any] = []
    size, each, seen, known = 0.0, 0.0, 0, 0
    parts = iter(flow.parts)
    for part in parts:
        held.append(part)
        count = codec.rows(flow.kind, part)
        seen, known = seen + count, known - count
        if count and known < 0:
            each, known = memory_of(flow.kind, part) / count, min(seen, _SAMPLED)
        size += each * count
        if size > room:
            rest = _one_by_one(held, parts)
            return None, _joined(rest) if flow.kind == "objects" else _cut_up(flow.kind, rest, room // 4)
    return whole(Flow(flow.kind, held)), None


def _one_by_one(held: list[Any], parts: Iterator[Any]) -> Iterator[Any]:
    """Yield all parts, keeping no reference to them."""
    held.reverse()
    while held:
        yield held.pop()
    yield from parts


def _joined(parts: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """Join short lists into longer ones of bounded size, because the consumer measures the memory of each list."""
    held: list[Any] = []
    size = 1
    for part in parts:
        if held:
            held += part
        else:
            held = list(part)
        if len(held) >= size:
            is_small = memory_of("objects", held) <= _BATCH_BYTES
            size = min(2 * size, _BATCH_RECORDS) if is_small else max(1, size // 2)
            yield held
            held = []
    if held:
        yield held


def _cut_up(kind: Kind, parts: Iterator[Any], size: int) -> Iterator[Any]:
    """Views of at most `size` bytes: mapped data takes no memory, but values derived from it do."""
    for part in parts:
        count = codec.rows(kind, part)
        rows = max(1, count * size // max(int(part.nbytes), 1))
        for start in range(0, count, rows):
            yield rows_between(kind, part, start, min(start + rows, count))


def sealed_flow(flow: Flow) -> Flow:
    """Make the arrays in records read-only, whether they come from a block or from the previous operation."""
    sources = flow.sources
    return Flow(
        flow.kind,
        map(sealed, flow.parts) if flow.kind == "objects" else flow.parts,
        None if sources is None else lambda: map(sealed_flow, sources()),
        flow.encoded,
        tuple(map(sealed_flow, flow.inputs)),
    )


def batches(flow: Flow) -> Iterator[list[Any]]:
    """The records as lists; rows of a table are dicts, rows of an array its elements."""
    if flow.kind == "objects":
        return iter(flow.parts)
    cut = _table_rows if flow.kind == "table" else _array_rows
    return chain.from_iterable(map(cut, flow.parts))


def records(flow: Flow) -> Iterator[Any]:
    return chain.from_iterable(batches(flow))


def _table_rows(table: Any) -> Iterator[list[Any]]:
    for batch in table.to_batches(max_chunksize=_BATCH_RECORDS):
        yield batch.to_pylist()


def _array_rows(array: Any) -> Iterator[list[Any]]:
    for start in range(0, len(array), _BATCH_RECORDS):
        yield list(array[start : start + _BATCH_RECORDS])


def batched(items: Iterator[Any]) -> Iterator[list[Any]]:
    """The items as lists, which are short while items are large."""
    size = 1
    while batch := list(islice(items, size)):
        size = next_size(batch, size)
        yield batch


def next_size(batch: list[Any], size: int) -> int:
    """The size of the next batch of a lazy chain: small while records are large."""
    if not batch:
        return size
    if memory_of("objects", batch[-1:]) * len(batch) > _BATCH_BYTES:
        return max(1, size // 2)
    return min(2 * size, _BATCH_RECORDS)


class RecordIterator(Iterator[Any]):
    """An iterator of records that can also return the remaining records as source partitions."""

    def __init__(self, flow: Flow) -> None:
        units = flow.sources() if flow.sources else iter((flow,))
        self._kind, self._units = flow.kind, units
        self._records = chain.from_iterable(map(records, units))

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def __next__(self) -> Any:
        return next(self._records)

    def partitions(self) -> Iterator[Any]:
        """The source partitions that are untouched so far, each as its list, table or array."""
        wholes = map(whole, self._units)
        return map(list, wholes) if self._kind == "objects" else wholes
