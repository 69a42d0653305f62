"""A partition on its way through a chain of operations: parts of one kind, made when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from msgspec import Struct

from treadle.primitives import codec
from treadle.primitives.references import Kind

_BATCH_BYTES = 1 << 20
_BATCH_RECORDS = 1024
_NONE: Any = object()


class Flow(Struct):
    """Records as a sequence of parts (lists, tables or arrays); the parts can be gone through once."""

    kind: Kind
    parts: Iterable[Any]
    sources: bool = False
    """The parts are the source partitions, not just pieces."""
    inputs: tuple[Flow, ...] = ()
    """The inputs of a shuffle apart, for a reduce that keeps them so; `parts` is then empty."""


def objects(records: list[Any]) -> Flow:
    return Flow("objects", (records,))


def whole(flow: Flow) -> Any:
    """The partition as one list, table or array. A list may be a block's own: it is not to be changed."""
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


def batches(flow: Flow) -> Iterator[list[Any]]:
    """The records as lists; those of a table are dicts, of an array its elements."""
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


def next_size(batch: list[Any], size: int) -> int:
    """How many records the next batch of a lazy chain may hold: few while records are large."""
    if not batch:
        return size
    if sys.getsizeof(batch[-1]) * len(batch) > _BATCH_BYTES:
        return max(1, size // 2)
    return min(2 * size, _BATCH_RECORDS)


class Values(Iterator[Any]):
    """An iterator of records that can also give what is left of them as source partitions."""

    def __init__(self, flow: Flow) -> None:
        units = (Flow(flow.kind, (part,)) for part in flow.parts) if flow.sources else iter((flow,))
        self._kind, self._units = flow.kind, units
        self._records = chain.from_iterable(map(records, units))

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def __next__(self) -> Any:
        return next(self._records)

    def partitions(self) -> Iterator[Any]:
        """The source partitions of which no record was taken, each as its list, table or array."""
        wholes = map(whole, self._units)
        return map(list, wholes) if self._kind == "objects" else wholes
