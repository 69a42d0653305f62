"""Outputs: the files of a stage."""

from __future__ import annotations

import msgspec

from treadle.dsl.model import Output
from treadle.executors.program import PartOutput
from treadle.primitives.formats import WriteOptions

from ..plan.plan import NarrowFeed, OutputSpec
from .pipeline import Dataset, Pipeline
from .planner import Planner


def output_of(output: Output, planner: Planner) -> OutputSpec | None:
    """The place and the format of the files. None: the place is missing, and is not needed."""
    uri = planner.location(output.uri)
    options = WriteOptions(output.format, tuple((output.columns or {}).items()), output.header, output.delimiter)
    return OutputSpec(PartOutput(uri, options), output.if_exists) if uri else None


def writer_of(name: str, flow: Pipeline, dataset: Dataset, written: OutputSpec) -> Pipeline:
    """A flow that writes the output of a cached stage."""
    assert flow.policy is not None
    policy = msgspec.structs.replace(flow.policy, cache=None, gang=0, durability="")
    writer = Pipeline(NarrowFeed(dataset.ref), dataset.partitions, dataset.estimate, [], [name], set(dataset.nodes))
    writer.policy, writer.output, writer.kept = policy, written, True
    writer.reasons.append(f"{name} is cached, and each run writes its own files")
    return writer
