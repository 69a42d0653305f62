"""Executes `shuffle`, and computes the keys that `reduce` groups by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.functions import describe
from treadle.primitives.shuffling.folds import fold_by_key, pair
from treadle.primitives.shuffling.key_order import order
from treadle.primitives.shuffling.keys import Key, canonical, stable_hash
from treadle.primitives.shuffling.partitioning import check_boundaries, choose_boundaries, sample_keys

from ..model import ShuffleStage
from .data import ReferencePartition, count, gather, isolated, records, take

KeysOf = Callable[[ReferencePartition], list[Key]]


def keys_by(by: str | list[str], load: Callable[[str], Callable[..., Any]]) -> KeysOf:
    """Return a function from a partition to the keys of its records, for the `by` of a shuffle."""
    if isinstance(by, list):
        return lambda partition: _members(by, partition)
    if by == "key":
        return lambda partition: [pair(record)[0] for record in records(partition)]
    function = load(by)
    return lambda partition: _called(function, partition)


def _members(columns: list[str], partition: ReferencePartition) -> list[Key]:
    if partition.kind == "array":
        raise DataError("`by: [columns]` needs a table; this is an array", "Use `by: module:f`.")
    try:
        tuples = [tuple(canonical(record[name]) for name in columns) for record in records(partition)]
    except (KeyError, TypeError, IndexError) as error:
        raise DataError(f"a record has no {', '.join(columns)}: {error!r}", "Correct `by`, or the records.") from error
    return [key[0] for key in tuples] if len(columns) == 1 else list(tuples)


def _called(function: Callable[..., Any], partition: ReferencePartition) -> list[Key]:
    partition = isolated(partition)
    if partition.kind == "objects" or not describe(function).vectorized:
        return [canonical(function(record)) for record in records(partition)]
    keys = [canonical(key) for key in function(partition.value)]
    if len(keys) != count(partition):
        message = f"the key function returned {len(keys)} keys for {count(partition)} records"
        raise UsageError(message, "A vectorised key function returns one key for each row, in order.")
    return keys


def sampled_boundaries(
    inputs: Sequence[Sequence[ReferencePartition]], keys_of: KeysOf, partitions: int, seed: int, stage: str
) -> list[Key]:
    """Return boundaries from a sample of each source partition."""
    samples = []
    for source in inputs:
        for index, partition in enumerate(source):
            keys = keys_of(partition)
            samples.append((sample_keys(keys, seed=seed, stage=stage, partition=index), len(keys)))
    return choose_boundaries(samples, partitions)


def shuffle(
    stage: ShuffleStage,
    inputs: Sequence[Sequence[ReferencePartition]],
    keys_of: KeysOf,
    partitions: int,
    boundaries: Any,
    combine: Callable[..., Any] | None,
) -> list[ReferencePartition]:
    """Return the target partitions: records by (input, source partition, position), with `sort` by key first."""
    checked = None if boundaries is None else check_boundaries(boundaries, partitions)
    scattered = [[_scatter(p, keys_of, partitions, checked, combine) for p in source] for source in inputs]
    result = []
    for target in range(partitions):
        apart = tuple(gather([pieces[target] for pieces in source]) for source in scattered)
        if stage.sort:
            apart = tuple(_sorted(piece, keys_of) for piece in apart)
        result.append(_joined(apart, keys_of if stage.sort else None))
    return result


def _scatter(
    partition: ReferencePartition,
    keys_of: KeysOf,
    partitions: int,
    boundaries: list[Key] | None,
    combine: Callable[..., Any] | None,
) -> list[ReferencePartition]:
    """Return one piece for each target."""
    if combine is not None:
        partition = ReferencePartition("objects", fold_by_key(records(isolated(partition)), combine))
    wanted: list[list[int]] = [[] for _ in range(partitions)]
    for position, target in enumerate(_targets(keys_of(partition), partitions, boundaries)):
        wanted[target].append(position)
    return [take(partition, positions) for positions in wanted]


def _targets(keys: list[Key], partitions: int, boundaries: list[Key] | None) -> list[int]:
    if boundaries is None:
        return [stable_hash(key) % partitions for key in keys]
    ordered = [order(boundary) for boundary in boundaries]
    return [bisect_right(ordered, order(key)) for key in keys]


def _sorted(partition: ReferencePartition, keys_of: KeysOf) -> ReferencePartition:
    keys = keys_of(partition)
    return take(partition, sorted(range(len(keys)), key=lambda position: order(keys[position])))


def _joined(apart: tuple[ReferencePartition, ...], keys_of: KeysOf | None) -> ReferencePartition:
    """Return the inputs of one target as one partition, which also keeps them separate when there are several."""
    if len(apart) == 1:
        return apart[0]
    if len({piece.kind for piece in apart if count(piece)}) > 1:
        return ReferencePartition("objects", None, apart)
    whole = gather(apart)
    whole = whole if keys_of is None else _sorted(whole, keys_of)
    return ReferencePartition(whole.kind, whole.value, apart)


def as_one(partition: ReferencePartition) -> ReferencePartition:
    """Return the partition if its inputs are of one kind; otherwise raises UsageError."""
    return gather(partition.inputs) if partition.value is None else partition
