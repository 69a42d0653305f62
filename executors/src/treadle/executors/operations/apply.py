"""The operations of a program, each a small function from one flow of records to the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from treadle.primitives.encoding import codec
from treadle.primitives.errors import UsageError
from treadle.primitives.shuffling.key_order import argsort
from treadle.primitives.shuffling.partitioning import choose_boundaries, sample_keys

from ..program import CallFunction, Cuts, MapPartition, MapRecords, ObjectState, Op, Reduce, Sample, Sort, ToBroadcast
from ..spill.disk_sequence import SpilledSequence
from ..spill.row_access import take
from ..spill.sorting import Sorter
from .attempt_state import Attempt
from .calls import call_function
from .grouping import plain
from .keys import keyed, keys_of
from .maps import map_partition, map_records
from .object_states import object_state
from .record_flow import Flow, objects, sealed_flow, whole, within
from .reduces import reduce


def apply(op: Op, flow: Flow, attempt: Attempt) -> Flow:
    """Apply one operation. The work may be deferred until the parts of the result are consumed.

    Raises StageFailed for exceptions in user code, TreadleError for invalid data or calls.
    """
    attempt.stage = op.stage
    run = cast("Callable[[Op, Flow, Attempt], Flow]", _OPERATIONS[type(op)])
    return run(op, sealed_flow(flow), attempt)


def keeps_inputs_apart(ops: tuple[Op, ...]) -> bool:
    """Whether the inputs of a shuffle are needed separately, because the first reduce names them."""
    first = next((op for op in ops if not isinstance(op, Sort)), None)
    return isinstance(first, Reduce) and bool(first.names) and first.uses is not None


def sort(op: Sort, flow: Flow, attempt: Attempt) -> Flow:
    """Sort by key, stably. Separate inputs are sorted separately."""
    if flow.inputs:
        return Flow(flow.kind, (), inputs=tuple(sort(op, one, attempt) for one in flow.inputs))
    value, parts = within(flow, attempt.room.size)
    if parts is None:
        positions = argsort(keys_of(op.by, op.stage, flow.kind, value, attempt))
        return Flow(flow.kind, (take(flow.kind, value, positions),))
    sorter = Sorter(flow.kind, attempt.room)
    for keys, part in keyed(op.by, op.stage, flow.kind, parts, attempt):
        sorter.add(keys, part)
    return Flow(flow.kind, (part for _, part in sorter.blocks()))


def to_broadcast(op: ToBroadcast, flow: Flow, _attempt: Attempt) -> Flow:
    """The partition as one record."""
    value = whole(flow)
    if op.single:
        check_single(op.stage, len(value))
        (value,) = value
    check_size(op.stage, sum(map(len, codec.encode("objects", [value]))), op.limit)
    return objects([value])


def check_single(stage: str, records: int) -> None:
    """Raises UsageError unless the reduce behind a broadcast produced one record."""
    if records != 1:
        raise UsageError(
            f"the reduce that {stage} broadcasts produced {records or 'nothing'}, not one record",
            "Give the reduce an `initial`, or make sure that its input is not empty.",
        )


def check_size(stage: str, size: int, limit: int) -> None:
    """Raises UsageError when a broadcast's value exceeds `limit` encoded bytes."""
    if size > limit:
        raise UsageError(
            f"the broadcast {stage} has {size:,} encoded bytes, more than its limit of {limit:,}",
            "Raise `limit` if every worker has that much memory to spare, or shuffle the data instead.",
        )


def sample(op: Sample, flow: Flow, attempt: Attempt) -> Flow:
    """One record: (sampled keys, rows of the partition)."""
    value, parts = within(flow, attempt.room.size)
    seed, stage = attempt.services.seed, attempt.path(op.stage)
    sampled = partial(sample_keys, seed=seed, stage=stage, partition=attempt.partition.index)
    if parts is None:
        keys = keys_of(op.by, op.stage, flow.kind, value, attempt)
        return objects([(sampled(keys), codec.rows(flow.kind, value))])
    columns = keyed(op.by, op.stage, flow.kind, parts, attempt)
    spilled = SpilledSequence(attempt.room, (list(plain(keys)) for keys, _ in columns))
    return objects([(sampled(spilled), len(spilled))])


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
    CallFunction: call_function,
    ObjectState: object_state,
}
