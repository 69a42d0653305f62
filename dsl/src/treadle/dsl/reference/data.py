"""Partitions and the records in them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.primitives.encoding import tabular
from treadle.primitives.encoding.read_only import read_only, sealed
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import UsageError
from treadle.primitives.formats import FileSplit


@dataclass(frozen=True)
class ReferencePartition:
    """One partition of a dataset: a list of records, an Arrow table or a NumPy array."""

    kind: Kind
    value: Any
    inputs: tuple[ReferencePartition, ...] = field(default=(), repr=False)
    """For a shuffle with several inputs: the records of each input."""
    split: FileSplit | None = field(default=None, repr=False, compare=False)
    """The source of the partition, for the stage that reads files itself."""


@dataclass(frozen=True)
class ReferenceDataset:
    partitions: list[ReferencePartition]


def kind_of(value: Any) -> Kind | None:
    """Return `array` or `table` for a value that is a partition by itself, otherwise None. Such a value's library is
    loaded.
    """
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.ndim:
        return "array"
    if arrow is not None and isinstance(value, (arrow.Table, arrow.RecordBatch)):
        return "table"
    return None


def as_partition(value: Any) -> ReferencePartition | None:
    """Return an array, a table or a frame as a partition; None for any other value."""
    found = tabular.as_partition(value)
    return None if found is None else ReferencePartition(*found)


def records(partition: ReferencePartition) -> list[Any]:
    """Return the records: rows of a table as dicts, or the elements of an array."""
    return list(partition.value.to_pylist() if partition.kind == "table" else partition.value)


def count(partition: ReferencePartition) -> int:
    return len(partition.value)


def take(partition: ReferencePartition, positions: Sequence[int]) -> ReferencePartition:
    """Return the records at the positions, in that order."""
    if partition.kind == "objects":
        return ReferencePartition("objects", [partition.value[position] for position in positions])
    import numpy

    rows = numpy.array(positions, dtype=numpy.int64)
    return ReferencePartition(
        partition.kind, partition.value.take(rows) if partition.kind == "table" else partition.value[rows]
    )


def gather(partitions: Sequence[ReferencePartition]) -> ReferencePartition:
    """Return all records in order. Raises UsageError for different kinds, except of empty partitions."""
    from treadle.primitives.encoding.codec import concat

    full = [partition for partition in partitions if count(partition)] or list(partitions[:1])
    kinds = {partition.kind for partition in full}
    if len(kinds) > 1:
        message = f"partitions of different kinds meet: {', '.join(sorted(kinds))}"
        raise UsageError(message, "Return the same kind (records, table or array) from every partition.")
    kind: Kind = kinds.pop() if kinds else "objects"
    alike = [partition.value for partition in partitions if partition.kind == kind]
    return ReferencePartition(kind, [] if not alike else alike[0] if len(alike) == 1 else concat(kind, alike))


def isolated(partition: ReferencePartition) -> ReferencePartition:
    """Return the partition for a function, whose changes to it must have no effect elsewhere."""
    if partition.kind == "table":
        return partition
    inputs = tuple(map(isolated, partition.inputs))
    return ReferencePartition(partition.kind, isolated_value(partition.value), inputs, partition.split)


def isolated_value(value: Any) -> Any:
    """Return arrays as read-only, also inside tuples, lists and dicts; any other value as a copy."""
    kind = kind_of(value)
    if kind == "array":
        return read_only(value)
    return value if kind == "table" else sealed([copy.deepcopy(value)])[0]


class ReferenceValues(Iterator[Any]):
    """The argument `values` of a reduce's `uses`: an iterator of records that also gives whole partitions."""

    def __init__(self, partitions: Iterable[ReferencePartition]) -> None:
        self._left = iter(list(partitions))
        self._records = (record for partition in self._left for record in records(partition))

    def __next__(self) -> Any:
        return next(self._records)

    def partitions(self) -> Iterator[Any]:
        """Return the source partitions from which no record was taken, each as its list, table or array."""
        return (partition.value for partition in self._left)
