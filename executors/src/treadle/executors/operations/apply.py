"""The operations of a program, each a small function from one flow of records to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from treadle.primitives import codec
from treadle.primitives.errors import UsageError
from treadle.primitives.frozen import sealed
from treadle.primitives.order import argsort
from treadle.primitives.partitioning import choose_boundaries, sample_keys
from treadle.primitives.references import Kind

from ..program import Cuts, MapPartition, MapRecords, Op, Reduce, Sample, Sort, ToBroadcast
from .attempt import Attempt
from .flow import Flow, objects, whole
from .keys import keys_of
from .maps import map_partition, map_records
from .reduces import reduce


def apply(op: Op, flow: Flow, attempt: Attempt) -> Flow:
    """What the operation makes of the records. Its work may be done when the result's parts are asked for.

    Raises StageFailed for what user code raises, TreadleError for data and calls that cannot be.
    """
    attempt.stage = op.stage
    run = cast("Callable[[Op, Flow, Attempt], Flow]", _OPERATIONS[type(op)])
    return run(op, _sealed(flow), attempt)


def _sealed(flow: Flow) -> Flow:
    """Arrays in records are read-only, whether a block or the operation before made them."""
    for one in flow.inputs or (flow,):
        if one.kind == "objects":
            one.parts = map(sealed, one.parts)
    return flow


def keeps_inputs_apart(ops: tuple[Op, ...]) -> bool:
    """Whether the inputs of a shuffle are wanted one by one: the first reduce names them."""
    first = next((op for op in ops if not isinstance(op, Sort)), None)
    return isinstance(first, Reduce) and bool(first.names) and first.uses is not None


def sort(op: Sort, flow: Flow, attempt: Attempt) -> Flow:
    """Stable, by key; inputs that are apart are sorted apart."""
    if flow.inputs:
        return Flow(flow.kind, (), inputs=tuple(sort(op, one, attempt) for one in flow.inputs))
    value = whole(flow)
    positions = argsort(keys_of(op.by, op.stage, flow.kind, value, attempt))
    return Flow(flow.kind, (take(flow.kind, value, positions),))


def take(kind: Kind, value: Any, positions: Any) -> Any:
    """The records at the positions, in that order."""
    if kind == "objects":
        return [value[index] for index in positions]
    import numpy as np

    rows = np.asarray(positions, dtype=np.int64)  # an empty list alone would not say that it holds integers
    return value.take(rows, axis=0) if kind == "array" else value.take(rows)


def to_broadcast(op: ToBroadcast, flow: Flow, _attempt: Attempt) -> Flow:
    """The partition as one record."""
    value = whole(flow)
    if op.single:
        check_single(op.stage, len(value))
        (value,) = value
    check_size(op.stage, sum(map(len, codec.encode("objects", [value]))), op.limit)
    return objects([value])


def check_single(stage: str, records: int) -> None:
    """Raises UsageError unless the reduce that a broadcast ships made one record."""
    if records != 1:
        raise UsageError(
            f"the reduce that {stage} broadcasts produced {records or 'nothing'}, not one record",
            "Give the reduce an `initial`, or make sure that its input is not empty.",
        )


def check_size(stage: str, size: int, limit: int) -> None:
    """Raises UsageError when a broadcast's value has more encoded bytes than it may."""
    if size > limit:
        raise UsageError(
            f"the broadcast {stage} has {size:,} encoded bytes, more than its limit of {limit:,}",
            "Raise `limit` if every worker has that much memory to spare, or shuffle the data instead.",
        )


def sample(op: Sample, flow: Flow, attempt: Attempt) -> Flow:
    """One record: (sampled keys, rows of the partition)."""
    value = whole(flow)
    keys = keys_of(op.by, op.stage, flow.kind, value, attempt)
    chosen = sample_keys(
        keys, seed=attempt.services.seed, stage=attempt.path(op.stage), partition=attempt.partition.index
    )
    return objects([(chosen, codec.rows(flow.kind, value))])


def cuts(op: Cuts, flow: Flow, _attempt: Attempt) -> Flow:
    """One record: the boundaries."""
    return objects([choose_boundaries(whole(flow), op.partitions)])


_OPERATIONS: dict[type[Op], Any] = {
    MapRecords: map_records,
    MapPartition: map_partition,
    Sort: sort,
    Reduce: reduce,
    ToBroadcast: to_broadcast,
    Sample: sample,
    Cuts: cuts,
}
