"""Outputs: the files that a stage leaves for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from treadle.dsl.model import WorkStage
from treadle.executors.program import Discard, Keep, PartOutput
from treadle.primitives.errors import UsageError
from treadle.primitives.formats import WriteOptions

from ..plan import NarrowFeed, OutputSpec
from .flow import Dataset, Flow

if TYPE_CHECKING:
    from .graph import GraphPlanner


def write_output(graph: GraphPlanner, name: str, stage: WorkStage, flow: Flow, node_id: str) -> Dataset | None:
    """Let the flow write the stage's output, if it has one.

    What is kept for later runs is written apart, by a segment that every run has for itself: the files are at a place
    of the run. The flow is then the segment `node_id`, and the result is its data. Raises UsageError inside a loop.
    """
    if stage.output is None:
        return None
    if graph.parent is not None:
        raise UsageError(
            f"{name}: a stage inside a loop cannot have an output, each iteration would write the same parts",
            "Carry the data in `state` and write it after the loop.",
        )
    output = stage.output
    uri = graph.planner.location(output.uri)
    columns = tuple((output.columns or {}).items())
    options = WriteOptions(output.format, columns, output.header, output.delimiter)
    written = OutputSpec(PartOutput(uri, options), output.if_exists)
    graph.outputs[name] = uri
    if flow.policy is None or flow.policy.cache is None:
        flow.output = written
        return None
    dataset = graph.add(flow, node_id, Keep())
    graph.add(_writer(name, flow, dataset, written), f"{name}.out", Discard())
    return dataset


def _writer(name: str, flow: Flow, dataset: Dataset, written: OutputSpec) -> Flow:
    assert flow.policy is not None
    policy = msgspec.structs.replace(flow.policy, cache=None, gang=0, durability="")
    writer = Flow(NarrowFeed(dataset.ref), dataset.partitions, dataset.estimate, [], [name], set(dataset.nodes))
    writer.policy, writer.output, writer.kept = policy, written, True
    writer.reasons.append(f"{name} is cached, and each run writes its own files")
    return writer
