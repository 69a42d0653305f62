"""The tail of a program: splits the partition into the parts of one block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.read_only import sealed
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import DataError
from treadle.primitives.formats.rows import first_failing
from treadle.primitives.shuffling.keys import Key, canonical
from treadle.primitives.shuffling.partitioning import check_boundaries, cut, hash_targets, split_evenly
from treadle.primitives.shuffling.range_partitioning import range_targets
from treadle.primitives.shuffling.scatter import scatter_rows

from ..operations.attempt_state import Attempt
from ..operations.keys import keys_of
from ..operations.record_flow import Flow, whole
from ..program import Cut, Merge, Scatter, Tail
from .combiner import combined
from .shuffle_index import bundle, merge


def parts_of(tail: Tail, kind: Kind, value: Any, attempt: Attempt) -> tuple[Kind, list[Any]]:
    """(kind of the parts, the parts) of a partition."""
    match tail:
        case Scatter():
            attempt.stage = tail.stage
            return scatter(tail, kind, sealed(value) if kind == "objects" else value, attempt)
        case Merge():
            attempt.stage = tail.stage
            return merge(value)
        case Cut(max_items, max_bytes):
            return kind, cut(kind, value, max_items, max_bytes)
        case _:
            return kind, [value]


def rows_of(tail: Tail, kind: Kind, parts: Sequence[Any]) -> int:
    """The number of records in the parts."""
    if isinstance(tail, Scatter) and tail.groups:
        return sum(sum(counts) for ((_, counts, _),) in parts)
    return sum(codec.rows(kind, part) for part in parts)


def scatter(tail: Scatter, kind: Kind, value: Any, attempt: Attempt) -> tuple[Kind, list[Any]]:
    """The records of each target partition, in order; with `combine`, folded by key first.

    With `groups`, a bundle for each group of consecutive targets.
    """
    if tail.combine:
        kind, value = "objects", whole(Flow("objects", combined(tail, Flow(kind, (value,)), attempt)))
    keys = keys_of(tail.by, tail.stage, kind, value, attempt)
    parts = distribute(kind, value, targets_of(tail, keys, boundaries_of(tail, attempt)), tail.partitions)
    if not tail.groups:
        return kind, parts
    bounds = split_evenly(tail.partitions, tail.groups)
    return "objects", [[bundle(kind, parts[start:stop])] for start, stop in bounds]


def boundaries_of(tail: Scatter, attempt: Attempt) -> list[Key] | None:
    """The boundaries of a range partition; None: hash partitioning. Raises DataError for invalid boundaries."""
    return None if tail.boundaries is None else check_boundaries(attempt.argument(tail.boundaries), tail.partitions)


def targets_of(tail: Scatter, keys: Any, boundaries: list[Key] | None, start: int = 0) -> Any:
    """The target of each key; the first record has the position `start`.

    Raises DataError that names the first record with an invalid key.
    """
    try:
        return hash_targets(keys, tail.partitions) if boundaries is None else range_targets(keys, boundaries)
    except DataError as error:
        position = first_failing(keys, canonical)
        named = f"record {start + position}: " if position >= 0 else ""
        raise DataError(named + error.message, error.hint) from None


def distribute(kind: Kind, value: Any, targets: Any, partitions: int) -> list[Any]:
    """The records of each target, in order."""
    if kind != "objects":
        return scatter_rows(kind, value, targets, partitions)
    parts: list[list[Any]] = [[] for _ in range(partitions)]
    appends = [part.append for part in parts]
    for target, record in zip(targets, value, strict=True):
        appends[target](record)
    return parts
