"""One level of the document: its stages, the open flows, and the nodes made so far."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from treadle.dsl.graph.partition_kinds import grouped_by
from treadle.dsl.graph.requirements import (
    StageMap,
    all_needs,
    broadcast_paths,
    dependencies,
    needs_first,
    skipped_where,
    stage_name,
)
from treadle.dsl.model import (
    BarrierStage,
    EventRange,
    Items,
    LoopStage,
    MapStage,
    Range,
    ReduceStage,
    Settings,
    ShuffleStage,
    Source,
    Stage,
    WorkStage,
)
from treadle.dsl.units import parse_percentage
from treadle.executors.program import Discard, Keep, Sort, Tail
from treadle.primitives.errors import UsageError

from ..plan.plan import (
    AllFeed,
    BarrierNode,
    DataRef,
    Form,
    Graph,
    LoopData,
    NarrowFeed,
    Node,
    NodeData,
    Policy,
    Shipped,
    StateData,
    Tolerance,
    merged_objects,
)
from .objects import apply_effects, require_objects
from .outputs import output_of, writer_of
from .pipeline import Dataset, Pipeline, by_of, why_not_fused
from .planner import Planner
from .read_counts import beside_one_input, kept_references, reads

Reference = str | Source | Items | Range | EventRange
"""The input of a stage: a bare reference, or a source from outside the workflow."""


class Level:
    """One level: the top of the workflow, or the body of a loop."""

    def __init__(
        self,
        planner: Planner,
        stages: StageMap,
        parent: Level | None = None,
        kept: Sequence[str] = (),
        path: tuple[str, ...] = (),
    ) -> None:
        """`path`: the path to the level in the document. `kept`: references that are read again later."""
        self.planner, self.stages, self.parent, self.path = planner, stages, parent, path
        self.nodes: list[Node] = []
        self.outputs: dict[str, str] = {}
        self.objects: dict[str, Dataset] = {}
        """The present state of the objects that stages here use."""
        self._open: dict[str, Pipeline] = {}
        self._flows: dict[str, list[Pipeline]] = {}
        """Stage -> the flows that it is part of."""
        self._datasets: dict[str, Dataset] = {}
        self.scattered: dict[str, Dataset] = {}
        """Shuffle -> its scattered data. Per-key reduces also read it when the shuffle is gathered as well."""
        self.consumers = Counter(
            name for stage in stages.values() for reference in reads(stage) if (name := stage_name(reference))
        )
        self.consumers.update(name for name in map(stage_name, kept) if name)
        self.conditional = skipped_where(stages, bool)
        self.skipped = skipped_where(stages, planner.sources.is_false)
        """Stages that are skipped with these inputs. If a loop is skipped, all of its stages are too."""
        self._quorum = {
            stage.input: percent
            for stage in stages.values()
            if isinstance(stage, BarrierStage) and (percent := parse_percentage(stage.quorum)) < 100
        }

    def graph(self) -> Graph:
        for name in list(self._open):
            self.dataset(name)
        makers: dict[str, set[str]] = {}
        for node in self.nodes:
            for stage in node.stages:
                makers.setdefault(stage, set()).add(node.id)
        nodes = {node.id: _settled(node, makers) for node in self.nodes}
        order = needs_first({name: (*node.data, *node.after) for name, node in nodes.items()})
        return Graph(tuple(nodes[name] for name in order), self.outputs)

    def refs(self) -> dict[str, DataRef]:
        """Stage -> its data, for stages with data."""
        found = {name: self._datasets.get(name) or self.scattered.get(name) for name in self.stages}
        return {name: dataset.ref for name, dataset in found.items() if dataset is not None}

    # -- output of a stage

    def close(self, name: str, stage: WorkStage, flow: Pipeline) -> None:
        """A stage's flow is complete. Keep it open for a single reader that may join it, or make it a segment."""
        written = self._write(name, stage, flow, name)
        if written is not None:
            self._datasets[name] = written
            return
        self._open[name] = flow
        if stage.output or self.consumers[name] != 1:
            self.dataset(name)

    def _write(self, name: str, stage: WorkStage, flow: Pipeline, node_id: str) -> Dataset | None:
        """Let the flow write the stage's output, if it has one. Returns the dataset, or None if the flow stays open.

        A cached stage is written by another segment, which runs in every run, since the files belong to the run. The
        flow is then the segment `node_id`, and its data is returned. Raises UsageError inside a loop.
        """
        if stage.output is None:
            return None
        if self.parent is not None:
            raise UsageError(
                f"{name}: a stage inside a loop cannot have an output, each iteration would write the same parts",
                "Carry the data in `state` and write it after the loop.",
            )
        written = output_of(stage.output, self.planner)
        if written is None:
            return None
        self.outputs[name] = written.part.uri
        if flow.policy is None or flow.policy.cache is None:
            flow.output = written
            return None
        dataset = self.add(flow, node_id, Keep())
        self.add(writer_of(name, flow, dataset, written), f"{name}.out", Discard())
        return dataset

    def barrier(self, name: str, stage: BarrierStage) -> None:
        quorum = self._quorum.get(stage.input, 100.0)
        shuffled = self._shuffled(stage.input) if quorum == 100 else None
        dataset = shuffled or self.reference(stage.input, name)
        if quorum < 100:
            self.planner.inexact.append(f"{name}: quorum {stage.quorum}")
        node = self.pass_on(name, stage, dataset)
        reason = f"waits for {quorum:g}% of {stage.input}; no task of its own"
        self.nodes.append(msgspec.structs.replace(node, reasons=(reason,)))
        if shuffled:
            self.scattered[name] = self._datasets.pop(name)

    def pass_on(self, name: str, stage: Stage, dataset: Dataset, limit: int = 0) -> BarrierNode:
        """The node of a stage that has the same data as its input."""
        self._datasets[name] = dataclasses.replace(dataset, nodes=dataset.nodes | {name}, limit=limit)
        return BarrierNode(
            id=name,
            stages=(name,),
            data=tuple(sorted(dataset.nodes)),
            after=tuple(self.planner.order(stage)),
            when=stage.when or "",
            paths=tuple(sorted(self.planner.paths(stage))),
        )

    # -- reading

    def read(self, reference: Reference, user: str, *, apart: bool = False) -> Pipeline:
        """A new flow that reads a stage's input partition by partition, sorted if its shuffle has `sort`.

        A shuffle that has been gathered is read in gathered form, unless the inputs must stay `apart`.
        """
        if not isinstance(reference, str) or reference.startswith("inputs."):
            return Pipeline(*self.planner.sources.feed(reference))
        shuffled = self._shuffled(reference) if apart or reference not in self._datasets else None
        dataset = shuffled or self.reference(reference, user)
        flow = Pipeline(NarrowFeed(dataset.ref), dataset.partitions, dataset.estimate, data=set(dataset.nodes))
        stage = self.shuffle_of(reference)
        if shuffled is not None and stage is not None and stage[1].sort:
            flow.ops.append(Sort(stage[0], by_of(stage[1])))
        return flow

    def join(self, reference: Reference, name: str, stage: WorkStage, tolerance: Tolerance | None = None) -> Pipeline:
        """The flow that this stage continues: its input's own if it may join it, or a new one."""
        producer = stage_name(reference) if isinstance(reference, str) else None
        policy = self.planner.policy(stage)
        apart = self._why_apart(producer, name, stage, policy, tolerance)
        if producer in self._open and not apart:
            flow = self._open.pop(str(producer))
            flow.reasons.append(f"{name} runs in the same tasks as {producer}")
        else:
            flow = self.read(reference, name)
            if apart:
                flow.reasons.append(f"{name} is apart from {producer}: {apart}")
        self.require(flow, name, stage)
        return flow

    def take_open(self, producer: str | None) -> Pipeline | None:
        """Take the open flow of a stage, for a reader that ends it with a tail of its own."""
        return self._open.pop(producer, None) if producer else None

    def state_input(self, reference: str, node_id: str, user: str) -> Dataset:
        """A loop's initial state as a dataset of segments."""
        if not reference.startswith("inputs."):
            return self.reference(reference, user)
        flow = self.read(reference, user)
        self.make_ready(flow, self.stages[user])
        return self.add(flow, node_id)

    def inner(self, name: str, loop: LoopStage) -> Level:
        """The level of a loop's body."""
        return Level(self.planner, loop.stages, self, kept_references(loop), (*self.path, "stages", name))

    def require(self, flow: Pipeline, name: str, stage: WorkStage) -> None:
        """Add the stage's own needs to the flow: settings, order, conditions, values, broadcasts."""
        flow.stages.append(name)
        flow.reasons += self.planner.sources.excuse
        self._flows.setdefault(name, []).append(flow)
        flow.policy = self.planner.policy(stage)
        flow.when = flow.when or stage.when or ""
        flow.after |= self.planner.order(stage) - set(flow.stages)
        flow.paths |= self.planner.paths(stage)
        for path in broadcast_paths(stage):
            self.use_broadcast(flow, ".".join(path), path[1])
        require_objects(self, flow, stage)
        self._wait_to_know(flow, stage)

    def make_ready(self, flow: Pipeline, stage: Stage) -> None:
        """Prepare a flow that only reads the stage's input. It runs when the stage does, and runs no user code."""
        policy = self.planner.policy(stage if isinstance(stage, Settings) else Settings())
        flow.policy = msgspec.structs.replace(policy, gang=0, idempotent=True)
        flow.when, flow.after = stage.when or "", {*self.planner.order(stage)}
        self._wait_to_know(flow, stage)

    def _wait_to_know(self, flow: Pipeline, stage: Stage) -> None:
        """Skip the flow whenever the stage is skipped, although it may not read the data that causes this."""
        for reference in self._skipping(stage):
            flow.data |= (self._shuffled(reference) or self.reference(reference, reference.split(".")[0])).nodes

    def use_broadcast(self, flow: Pipeline, path: str, stage: str) -> None:
        dataset = self.reference(stage, stage)
        flow.broadcasts[path] = Shipped(dataset.ref, stage, dataset.limit)
        flow.data |= dataset.nodes
        flow.after.discard(stage)

    def reference(self, reference: str, user: str) -> Dataset:
        """The materialised dataset of a bare reference, except `inputs.x`."""
        head, *rest = reference.split(".")
        if head == "state":
            single = self.planner.is_single(reference, user)
            return Dataset(StateData(rest[0]), 1 if single else 0, 0, frozenset())
        level: Level | None = self
        while level is not None and head not in level.stages and head not in level._datasets:
            level = level.parent
        if level is None:
            raise UsageError(f"{user}: there is no stage {head}", "Name a stage that can be seen from here.")
        if isinstance(level.stages.get(head), LoopStage):
            single = self.planner.is_single(reference, user)
            return Dataset(LoopData(head, rest[1]), 1 if single else 0, 0, frozenset({head}))
        return level.dataset(head)

    def dataset(self, name: str) -> Dataset:
        """The data of a stage in this level, partition by partition. An open flow is made a segment now."""
        flow = self._open.pop(name, None)
        if flow is not None:
            flow.quorum = self._quorum.get(name, 100.0)
            self._datasets[name] = self.add(flow, name, self._tail(name, flow))
        elif name not in self._datasets:
            stage = self.stages[name]
            if isinstance(stage, BarrierStage):
                behind = self.reference(stage.input, name)
                self._datasets[name] = dataclasses.replace(behind, nodes=behind.nodes | {name}, limit=0)
            elif isinstance(stage, ShuffleStage):
                self.gather(name, stage)
        return self._datasets[name]

    def gather(self, name: str, stage: ShuffleStage) -> None:
        """Read a shuffle's partitions once, to write them out, keep them, or read them whole."""
        flow = self.read(name, name)
        flow.policy, flow.when, flow.stages = self.planner.policy(stage), stage.when or "", [name]
        flow.quorum = self._quorum.get(name, 100.0)
        written = self._write(name, stage, flow, f"{name}.gathered")
        self._datasets[name] = written or self.add(flow, f"{name}.out", self._tail(name, flow))

    def _tail(self, name: str, flow: Pipeline) -> Tail:
        if self.consumers[name]:
            return Keep()
        flow.kept = self.parent is None
        return Discard() if flow.output else Keep()

    def collect(self, reference: Reference, name: str, stage: WorkStage) -> Pipeline:
        """A flow of one partition that reads the whole input. `require` has not been called for it yet."""
        if isinstance(reference, str) and not reference.startswith("inputs."):
            dataset = self.reference(reference, name)
        else:
            flow = self.read(reference, name)
            if flow.partitions == 1:
                return flow
            self.make_ready(flow, stage)
            dataset = self.add(flow, f"{name}.in")
        return self.all_of(dataset)

    def all_of(self, dataset: Dataset) -> Pipeline:
        """A flow of one partition that reads all partitions of a dataset."""
        return Pipeline(AllFeed(dataset.ref), 1, dataset.estimate, data=set(dataset.nodes))

    @property
    def outer(self) -> Level | None:
        return self.parent

    def changing(self, name: str) -> list[str]:
        """The stages whose open flows change an object."""
        return [stage for stage, flow in self._open.items() if any(name in merged_objects(op) for op in flow.ops)]

    def add(self, flow: Pipeline, node_id: str, tail: Tail | None = None, form: Form = "plain") -> Dataset:
        """Make the flow a segment."""
        self.nodes.append(flow.segment(node_id, self.planner.site, tail))
        apply_effects(self, flow, node_id)
        return Dataset(NodeData((node_id,), form), flow.partitions, flow.estimate, frozenset({node_id}))

    # -- shuffles behind barriers

    def shuffle_of(self, reference: Reference) -> tuple[str, ShuffleStage] | None:
        return grouped_by(self.planner.document, reference, self.path[1::2])

    def _shuffled(self, reference: Reference) -> Dataset | None:
        level: Level | None = self
        while level is not None:
            if reference in level.scattered:
                return level.scattered[reference]
            level = level.parent
        return None

    # -- parts

    def _why_apart(
        self, producer: str | None, name: str, stage: WorkStage, policy: Policy, tolerance: Tolerance | None
    ) -> str:
        """The reason why the stage does not run in its producer's tasks. Empty: it does."""
        if producer not in self._open:
            return self._why_closed(producer)
        flow = self._open[producer]
        if stage.when:
            return f"{name} has a condition"
        awaited = self.planner.order(stage) & set(flow.stages)
        if awaited:
            return f"{name} waits for all of {', '.join(sorted(awaited))}"
        if not self._before(dependencies(stage) - set(flow.stages), name).isdisjoint(flow.stages):
            return f"{name} also needs what comes after {flow.stages[-1]}"  # one segment would wait for itself
        if maybe := self._skipping(stage):
            return f"{name} is skipped where {maybe[0]} is"
        tolerance = tolerance if isinstance(stage, MapStage) else flow.tolerated.get(flow.stages[-1])
        return why_not_fused(flow, policy, tolerance)

    def _before(self, needs: Iterable[str], name: str) -> set[str]:
        """The stages of this level that must be over before a stage with these needs can begin, except `name` itself.

        They are the needs, the needs of those, and the stages that run in the same tasks as one of them.
        """
        found, todo = set[str](), {*needs}
        while todo:
            found |= all_needs(self.stages, todo)
            todo = {one for known in found for flow in self._flows.get(known, ()) for one in flow.stages}
            todo -= {*found, name}
        return found

    def _skipping(self, stage: Stage) -> list[str]:
        """References besides a single input that may cause the stage to be skipped."""
        return [one for one in beside_one_input(stage) if stage_name(one) in self.conditional]

    def _why_closed(self, producer: str | None) -> str:
        stage = self.stages.get(producer or "")
        if not isinstance(stage, MapStage | ReduceStage):
            return ""
        if self.consumers[producer or ""] > 1:
            return f"{producer} has several readers"
        return f"{producer} is written out" if stage.output else "its data is kept"


def _settled(node: Node, makers: Mapping[str, set[str]]) -> Node:
    """Replaces stage ids in `after` by node ids, once all nodes are known. `makers`: stage -> its nodes."""
    nodes = set[str]().union(*(makers.get(stage, ()) for stage in node.after))
    return msgspec.structs.replace(node, after=tuple(sorted(nodes - {node.id} - set(node.data))))
