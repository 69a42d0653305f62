"""Shuffle, broadcast and reduce: the stages in which data crosses partitions.

The choice of one or two levels for a shuffle, with its reason. A pure function of the numbers of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import msgspec
from msgspec import Struct

from treadle.dsl.graph.graph import inputs_of
from treadle.dsl.graph.requirements import broadcast_paths
from treadle.dsl.graph.stages import all_stages
from treadle.dsl.model import BroadcastStage, LoopStage, RangePartitioner, ReduceStage, ShuffleStage
from treadle.executors.program import Arg, Cuts, Merge, Reduce, Sample, Scatter, ToBroadcast, Value
from treadle.primitives.errors import UsageError
from treadle.primitives.shuffling.partitioning import DEFAULT_FAN_IN, DEFAULT_PARTITIONS

from ..plan.plan import AllFeed, BundleFeed, GroupFeed, NodeData, Shipped
from .lowering import Level
from .maps import call
from .pipeline import Dataset, Pipeline, by_of

WIDE = 50_000
"""Parts (sources x targets) above which a shuffle takes two levels, unless the parts are large. Measured in
docs/decisions/0014: a part costs about 50 microseconds besides its bytes."""
LARGE_PART = 32 * 2**10
"""Bytes of a part from which a second transfer costs as much as the part itself."""
TOO_WIDE = 1_000_000
"""Parts above which a shuffle always takes two levels, since the driver holds 200 to 350 bytes for each."""


class Levels(Struct, frozen=True):
    """The shape of a shuffle with two levels. It depends only on counts of the plan."""

    groups: int
    """Bundles of each source."""
    runs: tuple[int, ...]
    """For each input: the number of consecutive sources whose bundles are merged at once."""
    tasks: tuple[int, ...]
    """For each input: partitions of the second level."""


def levels_of(sources: Sequence[int], targets: int, estimate: int) -> tuple[Levels | None, str]:
    """The levels of a shuffle (None: one level), with the reason if the shuffle is wide.

    `sources`: partitions of each input; 0: known at run time only. With about sqrt(targets) groups and sqrt(sources)
    runs of sources, a task of the second level has the geometric mean of a source's and a target's data.
    """
    total = sum(sources)
    parts = total * targets
    if not all(sources) or total < 2 or parts <= WIDE:
        return None, ""
    if estimate > parts * LARGE_PART and parts <= TOO_WIDE:
        return None, f"one level: its {parts:,} parts of about {estimate // parts:,} bytes are worth a read each"
    groups = isqrt(targets)
    runs = tuple(-(-count // isqrt(count)) for count in sources)
    counts = [-(-count // run) for count, run in zip(sources, runs, strict=True)]
    reason = (
        f"two levels: {total:,} x {targets:,} = {parts:,} parts are more than {WIDE:,}; "
        f"in {groups:,} groups of targets they are {total * groups:,} + {sum(counts) * targets:,}"
    )
    return Levels(groups, runs, tuple(groups * count for count in counts)), reason


# -- shuffle ----------


def shuffle(level: Level, name: str, stage: ShuffleStage) -> None:
    """The writing side of a shuffle: one segment for each input, which ends in a scattered block."""
    inputs = [item for _, item in inputs_of(stage)]
    samples = _samples(level, name, stage, inputs)
    flows = [level.join(reference, name, stage) for reference in inputs]
    partitions = _partitions(level, name, stage, flows)
    boundaries = _boundaries(level, name, stage, partitions, samples)
    estimate = sum(flow.estimate for flow in flows)
    levels, reason = levels_of([flow.partitions for flow in flows], partitions, estimate)
    names = []
    for index, flow in enumerate(flows):
        if isinstance(boundaries, Value) and isinstance(boundaries.value, str):
            _need_boundaries(level, flow, name, boundaries.value)
        tail = Scatter(name, by_of(stage), partitions, boundaries, stage.combine or "", levels.groups if levels else 0)
        flow.reasons += [reason] if reason else []
        names.append(name if len(inputs) == 1 else f"{name}.{index}")
        if levels:
            _in_two_levels(level, names[-1], tail, flow, levels, index)
        else:
            level.add(flow, names[-1], tail)
    data = NodeData(tuple(names), "scattered", levels.groups if levels else 1)
    level.scattered[name] = Dataset(data, partitions, estimate, frozenset(names))
    if stage.output or not level.consumers[name]:
        level.gather(name, stage)


def _in_two_levels(level: Level, node_id: str, tail: Scatter, flow: Pipeline, levels: Levels, index: int) -> None:
    """Bundles first, then a segment that merges them. The merge runs no user code, so it may be retried at will."""
    dataset = level.add(flow, f"{node_id}.level1", tail, "scattered")
    assert isinstance(dataset.ref, NodeData)
    assert flow.policy is not None
    run = levels.runs[index]
    second = Pipeline(BundleFeed(dataset.ref, run), levels.tasks[index], flow.estimate, [], [tail.stage])
    second.data = set(dataset.nodes)
    second.policy = msgspec.structs.replace(flow.policy, idempotent=True)
    second.reasons.append(f"each partition merges the bundles of one of {levels.groups} groups from {run} sources")
    level.add(second, node_id, Merge(tail.stage))


def _partitions(level: Level, name: str, stage: ShuffleStage, flows: Sequence[Pipeline]) -> int:
    if stage.partitions is not None:
        return level.planner.sources.partitions(stage.partitions)
    known = [flow.partitions for flow in flows]
    if all(known):
        return min(sum(known), DEFAULT_PARTITIONS)
    if len(flows) > 1:
        raise UsageError(
            f"{name}: the number of partitions cannot be derived, since an input's own is known only at run time",
            "Write `partitions:` on this shuffle.",
        )
    return 0


def _samples(level: Level, name: str, stage: ShuffleStage, inputs: Sequence[Any]) -> list[str]:
    """Segments that sample the keys of each input, for a range partitioner without boundaries."""
    if not isinstance(stage.partitioner, RangePartitioner) or stage.partitioner.boundaries is not None:
        return []
    names = []
    for index, reference in enumerate(inputs):
        flow = level.read(reference, name)
        level.require(flow, name, stage)
        flow.ops.append(Sample(name, by_of(stage)))
        flow.estimate = 2**16
        flow.reasons.append(f"{name} has no boundaries: they are drawn from a sample of each partition")
        names.append(f"{name}.sample" if len(inputs) == 1 else f"{name}.sample.{index}")
        level.add(flow, names[-1])
    return names


def _boundaries(level: Level, name: str, stage: ShuffleStage, partitions: int, samples: list[str]) -> Arg | None:
    if not isinstance(stage.partitioner, RangePartitioner):
        return None
    given = stage.partitioner.boundaries
    if isinstance(given, list):
        return Value(given)
    if isinstance(given, str):
        return Value("${{ stages." + given + " }}")
    flow = Pipeline(AllFeed(NodeData(tuple(samples))), 1, 2**16, [Cuts(name, partitions)], [name], set(samples))
    flow.policy, flow.when = level.planner.policy(stage), stage.when or ""
    level.add(flow, f"{name}.cuts")
    return Value("${{ cuts." + name + " }}")


def _need_boundaries(level: Level, flow: Pipeline, name: str, template: str) -> None:
    path = template.removeprefix("${{ ").removesuffix(" }}")
    root, stage = path.split(".")
    if root == "stages":
        level.use_broadcast(flow, path, stage)
    else:
        flow.broadcasts[path] = Shipped(NodeData((f"{name}.cuts",)), name)
        flow.data.add(f"{name}.cuts")


# -- broadcast ----------


def broadcast(level: Level, name: str, stage: BroadcastStage) -> None:
    if not _ships_as_it_is(level, name, stage):
        level.close(name, stage, _broadcast_flow(level, name, stage))
        return
    node = level.pass_on(name, stage, level.reference(str(stage.input), name), stage.limit)
    reason = "its input is one record in a block already: no task of its own"
    level.nodes.append(msgspec.structs.replace(node, does="ship the input as it is", reasons=(reason,)))


def _ships_as_it_is(level: Level, name: str, stage: BroadcastStage) -> bool:
    """Returns whether the broadcast needs no task, since its input is already a single record in a block.

    Its readers then check the limit, so at least one reader must be unconditional. A state does not qualify if an inner
    loop has a state of the same name, since readers there would take that one.
    """
    if stage.output or not level.planner.is_single(stage.input, name):
        return False
    inner = [state for _, one in all_stages(level.stages) if isinstance(one, LoopStage) for state in one.state]
    readers = [other for other, one in level.stages.items() if ("stages", name) in broadcast_paths(one)]
    return stage.input not in {f"state.{state}" for state in inner} and not level.conditional.issuperset(readers)


def _broadcast_flow(level: Level, name: str, stage: BroadcastStage) -> Pipeline:
    flow = level.collect(stage.input, name, stage)
    level.require(flow, name, stage)
    flow.ops.append(ToBroadcast(name, level.planner.is_single(stage.input, name), stage.limit))
    return flow


# -- reduce ----------


def reduce_flow(level: Level, name: str, stage: ReduceStage) -> Pipeline:
    if stage.per == "key":
        flow = _per_key(level, name, stage)
    elif stage.per == "partition":
        flow = level.join(stage.input, name, stage)
        flow.ops.append(_fold(name, stage))
    elif stage.uses:
        flow = _root(level, name, stage, level.collect(stage.input, name, stage))
        flow.ops.append(_fold(name, stage))
    else:
        flow = _tree(level, name, stage)
    flow.metrics[name] = dict(stage.metrics)
    if name in level.planner.valued:
        *before, fold = flow.ops
        flow.ops = [*before, msgspec.structs.replace(fold, value=True)]
    return flow


def _per_key(level: Level, name: str, stage: ReduceStage) -> Pipeline:
    found = level.shuffle_of(stage.input)
    if found is None:
        raise UsageError(f"{name}: per: key reads no shuffle", "Name a shuffle, or a barrier over one, as its input.")
    _, shuffle = found
    names = tuple(item if isinstance(item, str) else str(i) for i, (_, item) in enumerate(inputs_of(shuffle)))
    flow = level.read(stage.input, name, apart=len(names) > 1)
    level.require(flow, name, stage)
    flow.estimate //= 4
    apart = names if len(names) > 1 else ()
    fold = _fold(name, stage)
    flow.ops.append(msgspec.structs.replace(fold, per="key", by=by_of(shuffle), names=apart, sorted=shuffle.sort))
    return flow


def _fold(name: str, stage: ReduceStage, fan_in: int = 0) -> Reduce:
    return Reduce(
        stage=name,
        per="partition",
        uses=call(stage.uses, stage) if stage.uses else None,
        combine=stage.combine or "",
        fan_in=fan_in,
        initial=Value(stage.initial) if stage.has_initial else None,
        finish=call(stage.finish, stage) if stage.finish else None,
        metrics=dict(stage.metrics),
    )


def _root(level: Level, name: str, stage: ReduceStage, flow: Pipeline) -> Pipeline:
    """The single task of a reduce over all data. Its result is assumed to be small."""
    flow.estimate = 2**16
    level.require(flow, name, stage)
    return flow


def _tree(level: Level, name: str, stage: ReduceStage) -> Pipeline:
    """Leaves fold inside the producer's tasks; levels of groups follow until one task can fold the rest."""
    fan_in = level.planner.sources.count(stage.fan_in, 2) if stage.fan_in is not None else DEFAULT_FAN_IN
    fold = Reduce(stage=name, per="partition", combine=stage.combine or "")
    leaves = level.join(stage.input, name, stage)
    leaves.ops.append(fold)
    count = leaves.partitions
    dataset = level.add(leaves, f"{name}.leaves")
    height = 0
    while count > fan_in * fan_in:
        height, count = height + 1, -(-count // fan_in)
        flow = Pipeline(
            GroupFeed(dataset.ref, fan_in), count, dataset.estimate // fan_in, [fold], [name], set(dataset.nodes)
        )
        flow.policy, flow.when = level.planner.policy(stage), stage.when or ""
        dataset = level.add(flow, f"{name}.level{height}")
    root = _root(level, name, stage, level.all_of(dataset))
    root.ops.append(_fold(name, stage, fan_in))
    root.reasons.append(f"a tree of fan-in {fan_in}: leaves in the producers' tasks, {height} levels, the rest at once")
    return root
