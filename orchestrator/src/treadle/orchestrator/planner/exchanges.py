"""Shuffle, broadcast and reduce: where data crosses partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.dsl.graph.graph import inputs_of
from treadle.dsl.graph.needs import all_needs, broadcast_paths
from treadle.dsl.graph.stages import all_stages
from treadle.dsl.model import BroadcastStage, LoopStage, RangePartitioner, ReduceStage, ShuffleStage
from treadle.executors.program import Arg, By, Cuts, Merge, Reduce, Sample, Scatter, ToBroadcast, Value
from treadle.primitives.errors import UsageError
from treadle.primitives.partitioning import DEFAULT_FAN_IN, DEFAULT_PARTITIONS

from ..plan import AllFeed, BundleFeed, GroupFeed, NodeData, Shipped
from .flow import Dataset, Flow
from .maps import call
from .widths import Levels, levels_of

if TYPE_CHECKING:
    from .graph import GraphPlanner


def by_of(stage: ShuffleStage) -> By:
    if isinstance(stage.by, list):
        return By(columns=tuple(stage.by))
    return By(first=True) if stage.by == "key" else By(function=stage.by)


# -- shuffle ----------


def scatter(graph: GraphPlanner, name: str, stage: ShuffleStage) -> None:
    """The writing side: one segment for each input, ending in a scattered block."""
    inputs = [item for _, item in inputs_of(stage)]
    samples = _samples(graph, name, stage, inputs)
    flows = [graph.join(reference, name, stage) for reference in inputs]
    partitions = _partitions(graph, name, stage, flows)
    boundaries = _boundaries(graph, name, stage, partitions, samples)
    estimate = sum(flow.estimate for flow in flows)
    levels, reason = levels_of([flow.partitions for flow in flows], partitions, estimate)
    names = []
    for index, flow in enumerate(flows):
        if isinstance(boundaries, Value) and isinstance(boundaries.value, str):
            _need_boundaries(graph, flow, name, boundaries.value)
        tail = Scatter(name, by_of(stage), partitions, boundaries, stage.combine or "", levels.groups if levels else 0)
        flow.reasons += [reason] if reason else []
        names.append(name if len(inputs) == 1 else f"{name}.{index}")
        if levels:
            _in_two_levels(graph, names[-1], tail, flow, levels, index)
        else:
            graph.add(flow, names[-1], tail, "scattered")
    data = NodeData(tuple(names), "scattered", levels.groups if levels else 1)
    graph.scattered[name] = Dataset(data, partitions, estimate, frozenset(names))


def _in_two_levels(graph: GraphPlanner, node_id: str, tail: Scatter, flow: Flow, levels: Levels, index: int) -> None:
    """Bundles first, then a segment that merges them: no user code runs in it, so it may run as often as it must."""
    dataset = graph.add(flow, f"{node_id}.level1", tail, "scattered")
    assert isinstance(dataset.ref, NodeData)
    assert flow.policy is not None
    run = levels.runs[index]
    second = Flow(BundleFeed(dataset.ref, run), levels.tasks[index], flow.estimate, [], [tail.stage])
    second.data = set(dataset.nodes)
    second.policy = msgspec.structs.replace(flow.policy, idempotent=True)
    second.reasons.append(f"each partition merges the bundles of one of {levels.groups} groups from {run} sources")
    graph.add(second, node_id, Merge(tail.stage), "scattered")


def _partitions(graph: GraphPlanner, name: str, stage: ShuffleStage, flows: Sequence[Flow]) -> int:
    if stage.partitions is not None:
        return graph.planner.sources.partitions(stage.partitions)
    known = [flow.partitions for flow in flows]
    if all(known):
        return min(sum(known), DEFAULT_PARTITIONS)
    if len(flows) > 1:
        raise UsageError(
            f"{name}: the number of partitions cannot be derived, since an input's own is known only at run time",
            "Write `partitions:` on this shuffle.",
        )
    return 0


def _samples(graph: GraphPlanner, name: str, stage: ShuffleStage, inputs: Sequence[Any]) -> list[str]:
    """For a range partitioner without boundaries: segments that sample the keys of each input."""
    if not isinstance(stage.partitioner, RangePartitioner) or stage.partitioner.boundaries is not None:
        return []
    names = []
    for index, reference in enumerate(inputs):
        flow = graph.read(reference, name)
        graph.require(flow, name, stage)
        flow.ops.append(Sample(name, by_of(stage)))
        flow.estimate = 2**16
        flow.reasons.append(f"{name} has no boundaries: they are drawn from a sample of each partition")
        names.append(f"{name}.sample" if len(inputs) == 1 else f"{name}.sample.{index}")
        graph.add(flow, names[-1])
    return names


def _boundaries(graph: GraphPlanner, name: str, stage: ShuffleStage, partitions: int, samples: list[str]) -> Arg | None:
    if not isinstance(stage.partitioner, RangePartitioner):
        return None
    given = stage.partitioner.boundaries
    if isinstance(given, list):
        return Value(given)
    if isinstance(given, str):
        return Value("${{ stages." + given + " }}")
    flow = Flow(AllFeed(NodeData(tuple(samples))), 1, 2**16, [Cuts(name, partitions)], [name], set(samples))
    flow.policy, flow.when = graph.planner.policy(stage), stage.when or ""
    graph.add(flow, f"{name}.cuts")
    return Value("${{ cuts." + name + " }}")


def _need_boundaries(graph: GraphPlanner, flow: Flow, name: str, template: str) -> None:
    path = template.removeprefix("${{ ").removesuffix(" }}")
    root, stage = path.split(".")
    if root == "stages":
        graph.use_broadcast(flow, path, stage)
    else:
        flow.broadcasts[path] = Shipped(NodeData((f"{name}.cuts",)), name)
        flow.data.add(f"{name}.cuts")


# -- broadcast ----------


def ships_as_it_is(graph: GraphPlanner, name: str, stage: BroadcastStage) -> bool:
    """Whether the broadcast needs no task, since its input is one record in a block already.

    Its limit is then looked at by who reads it, so somebody must. A state is not passed on where a loop further in has
    one of the same name: its readers there would take that.
    """
    if stage.output or not graph.planner.is_single(stage.input, name):
        return False
    inner = [state for _, one in all_stages(graph.stages) if isinstance(one, LoopStage) for state in one.state]
    readers = [other for other, one in graph.stages.items() if ("stages", name) in broadcast_paths(one)]
    return stage.input not in {f"state.{state}" for state in inner} and any(_runs(graph, one) for one in readers)


def _runs(graph: GraphPlanner, name: str) -> bool:
    """Whether the stage runs whenever its level does: neither it nor what comes before it has a condition."""
    return not any(graph.stages[one].when for one in all_needs(graph.stages, [name]))


def broadcast_flow(graph: GraphPlanner, name: str, stage: BroadcastStage) -> Flow:
    flow = graph.collect(stage.input, name, stage)
    graph.require(flow, name, stage)
    flow.ops.append(ToBroadcast(name, graph.planner.is_single(stage.input, name), stage.limit))
    return flow


# -- reduce ----------


def reduce_flow(graph: GraphPlanner, name: str, stage: ReduceStage) -> Flow:
    if stage.per == "key":
        flow = _per_key(graph, name, stage)
    elif stage.per == "partition":
        flow = graph.join(stage.input, name, stage)
        flow.ops.append(_fold(name, stage))
    elif stage.uses:
        flow = _root(graph, name, stage, graph.collect(stage.input, name, stage))
        flow.ops.append(_fold(name, stage))
    else:
        flow = _tree(graph, name, stage)
    flow.metrics[name] = dict(stage.metrics)
    return flow


def _per_key(graph: GraphPlanner, name: str, stage: ReduceStage) -> Flow:
    found = graph.shuffle_of(stage.input)
    if found is None:
        raise UsageError(f"{name}: per: key reads no shuffle", "Name a shuffle, or a barrier over one, as its input.")
    _, shuffle = found
    names = tuple(item if isinstance(item, str) else str(i) for i, (_, item) in enumerate(inputs_of(shuffle)))
    flow = graph.read(stage.input, name, apart=len(names) > 1)
    graph.require(flow, name, stage)
    flow.estimate //= 4
    apart = names if len(names) > 1 else ()
    fold = _fold(name, stage)
    flow.ops.append(msgspec.structs.replace(fold, per="key", by=by_of(shuffle), names=apart, sorted=shuffle.sort))
    return flow


def _fold(name: str, stage: ReduceStage, fan_in: int = 0) -> Reduce:
    return Reduce(
        stage=name,
        per="partition",
        uses=call(stage.uses, stage.with_) if stage.uses else None,
        combine=stage.combine or "",
        fan_in=fan_in,
        initial=Value(stage.initial) if stage.has_initial else None,
        finish=call(stage.finish, stage.with_) if stage.finish else None,
        metrics=dict(stage.metrics),
    )


def _root(graph: GraphPlanner, name: str, stage: ReduceStage, flow: Flow) -> Flow:
    """The one task of a reduce over everything, whose result is taken to be small."""
    flow.estimate = 2**16
    graph.require(flow, name, stage)
    return flow


def _tree(graph: GraphPlanner, name: str, stage: ReduceStage) -> Flow:
    """Leaves fold inside the producer's tasks; levels of groups follow until one task can fold the rest."""
    fan_in = graph.planner.sources.count(stage.fan_in) if stage.fan_in is not None else DEFAULT_FAN_IN
    if fan_in < 2:
        raise UsageError(f"{name}: fanIn {fan_in} makes no tree", "Give at least 2.")
    fold = Reduce(stage=name, per="partition", combine=stage.combine or "")
    leaves = graph.join(stage.input, name, stage)
    leaves.ops.append(fold)
    count = leaves.partitions
    dataset = graph.add(leaves, f"{name}.leaves")
    level = 0
    while count > fan_in * fan_in:
        level, count = level + 1, -(-count // fan_in)
        flow = Flow(
            GroupFeed(dataset.ref, fan_in), count, dataset.estimate // fan_in, [fold], [name], set(dataset.nodes)
        )
        flow.policy, flow.when = graph.planner.policy(stage), stage.when or ""
        dataset = graph.add(flow, f"{name}.level{level}")
    root = _root(graph, name, stage, graph.all_of(dataset))
    root.ops.append(_fold(name, stage, fan_in))
    root.reasons.append(f"a tree of fan-in {fan_in}: leaves in the producers' tasks, {level} levels, the rest at once")
    return root
