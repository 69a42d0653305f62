"""Estimates the usage of a run by its plan. Pure. Each step of the formula in docs/cost.md is a function here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from treadle.executors.interface import Capabilities
from treadle.executors.program import Discard

from ..plan.plan import (
    AllFeed,
    BundleFeed,
    Child,
    FilesFeed,
    Graph,
    GroupFeed,
    ItemsFeed,
    LoopNode,
    NarrowFeed,
    NodeData,
    Plan,
    RangeFeed,
    Segment,
)
from .bill import BillLine
from .usage import GIGABYTE, Usage, memory_given, temporary_given

LEDGER_SECONDS = 0.05
"""Commits within this time share an object of the ledger."""
HEARTBEAT_SECONDS = 1.0
"""Time between two heartbeats of an activity that reach the server."""
PER_CALL = 2
"""Objects that the call of a function leaves besides its block: the record of the call, and its reports."""
RUN_ACTIONS = 3
"""The workflow, the activity that opens the run, and the end of the run."""


class Assumed(Struct, frozen=True):
    """Assumptions for values that the plan does not have."""

    bytes: int = 0
    """Bytes of each source of files. 0: list the files."""
    slots: int = 0
    """Slots of every executor. 0: the executor's own number."""
    rate: int = 50 << 20
    """Bytes that one task reads, processes and writes in a second."""
    start: float = 0.5
    """Seconds of an attempt besides its data: the call, a warm sandbox, the first byte from the store."""
    made: dict[str, int] = {}
    """Stage -> bytes of all its output. Default: the plan's guess."""


class OutputEstimate(Struct, frozen=True):
    """The output of a segment, as the formula needs it for the segments that read it."""

    partitions: int
    """The planned number; the number of slots if the plan leaves it open."""
    size: int
    """Bytes of output."""
    planned: int
    """Bytes of output by the plan alone."""
    put: str


def estimate(plan: Plan, assumed: Assumed) -> list[BillLine]:
    """One line for the run, and one for each segment and child. A loop counts with its maximum of iterations.

    A child that is planned when it starts has one line only, since its plan is not known yet.
    """
    run = BillLine("(run)", "", "", Usage(actions=RUN_ACTIONS))
    return [run, *_lines(plan.graph, plan.executors, assumed, 1, {})]


def elapsed(plan: Plan, lines: list[BillLine]) -> float:
    """The least number of seconds that the run takes: the longest path through its nodes."""
    took = {line.node: line.elapsed for line in lines}
    return _longest(plan.graph, took)


def _longest(graph: Graph, took: Mapping[str, float]) -> float:
    ends: dict[str, float] = {}
    for node in graph.nodes:
        begins = max((ends.get(need, 0.0) for need in {*node.data, *node.after}), default=0.0)
        own = took.get(node.id, 0.0)
        if isinstance(node, LoopNode):
            own = _longest(node.body, took)
        elif isinstance(node, Child) and node.graph is not None:
            below = f"{node.id}/"
            own = _longest(
                node.graph, {name.removeprefix(below): took[name] for name in took if name.startswith(below)}
            )
        ends[node.id] = begins + own
    return max(ends.values(), default=0.0)


def _lines(
    graph: Graph, executors: Mapping[str, Capabilities], assumed: Assumed, times: int, known: dict[str, OutputEstimate]
) -> Iterator[BillLine]:
    for node in graph.nodes:
        if isinstance(node, LoopNode):
            yield from _lines(node.body, executors, assumed, times * node.max_iterations, known)
        elif isinstance(node, Child):
            yield BillLine(node.id, "", "", Usage(actions=RUN_ACTIONS))
            inner = _lines(node.graph, executors, assumed, times, {}) if node.graph is not None else ()
            yield from (structs.replace(line, node=f"{node.id}/{line.node}") for line in inner)
        elif isinstance(node, Segment):
            can = executors[node.policy.executor]
            slots = assumed.slots or can.slots
            known[node.id] = _shape(node, slots, assumed, known)
            yield _line(node, can, slots, assumed, times, known)


def _shape(segment: Segment, slots: int, assumed: Assumed, known: Mapping[str, OutputEstimate]) -> OutputEstimate:
    """An assumption about a stage's output scales the output of all stages after it in proportion."""
    before = _feeding(segment, known)
    planned = sum(one.planned for one in before)
    share = sum(one.size for one in before) / planned if planned else 1.0
    made = [assumed.made[stage] for stage in (segment.id, *segment.stages[::-1]) if stage in assumed.made]
    size = made[0] if made else int(segment.estimate * share)
    put = "" if isinstance(segment.tail, Discard) else segment.put
    partitions = segment.partitions or max((one.partitions for one in before), default=slots)
    return OutputEstimate(partitions, size, segment.estimate, put)


def _feeding(segment: Segment, known: Mapping[str, OutputEstimate]) -> list[OutputEstimate]:
    """The data that the segment's partitions read. Broadcasts are left out, since a warm worker keeps them."""
    data = getattr(segment.feed, "data", None)
    if data is None:
        return []
    nodes = data.nodes if isinstance(data, NodeData) else segment.data
    return [known[need] for need in nodes if need in known]


def _line(
    segment: Segment, can: Capabilities, slots: int, assumed: Assumed, times: int, known: Mapping[str, OutputEstimate]
) -> BillLine:
    own, inputs = known[segment.id], _feeding(segment, known)
    limit = segment.policy.max_concurrency or own.partitions
    waves = math.ceil(own.partitions / max(1, min(slots, limit)))
    each = assumed.start + (_bytes_in(segment, inputs) + own.size) / own.partitions / assumed.rate
    memory = memory_given(can, segment.policy.memory_start)
    usage = _repeated(_usage(segment, can, own, inputs, each, waves * each), times)
    name, late = segment.policy.executor, 0 < can.time_limit < each
    return BillLine(segment.id, name, can.kind, usage, own.partitions, waves, times * waves * each, memory, late)


def _usage(
    segment: Segment, can: Capabilities, own: OutputEstimate, inputs: list[OutputEstimate], each: float, elapsed: float
) -> Usage:
    seconds = own.partitions * each
    return Usage(
        own.partitions,
        seconds,
        seconds,
        seconds * memory_given(can, segment.policy.memory_start) / GIGABYTE,
        _puts(segment, can, own, elapsed),
        _gets(segment, own, inputs),
        _moved(segment, inputs),
        1 + math.ceil(elapsed / HEARTBEAT_SECONDS),
        temporary=temporary_given(can, seconds) if can.sizes else 0.0,
    )


def _repeated(usage: Usage, times: int) -> Usage:
    """The usage in all iterations of the enclosing loops. The iterations together are one activity."""
    grown = {name: getattr(usage, name) * times for name in usage.__struct_fields__ if name not in ("moved", "actions")}
    return structs.replace(usage, **grown, moved={place: size * times for place, size in usage.moved.items()})


def _bytes_in(segment: Segment, inputs: list[OutputEstimate]) -> int:
    if isinstance(segment.feed, FilesFeed):
        return sum(split.stop - split.start for split in segment.feed.splits)
    return sum(one.size for one in inputs)


def _puts(segment: Segment, can: Capabilities, own: OutputEstimate, seconds: float) -> int:
    """A block and an output part for each partition, the ledger, and the objects that function calls leave."""
    blocks = own.partitions * ((own.put == "store") + (segment.output is not None))
    calls = PER_CALL * own.partitions if can.sizes and not can.kept else 0
    return blocks + calls + 2 + min(own.partitions, math.ceil(seconds / LEDGER_SECONDS))


def _gets(segment: Segment, own: OutputEstimate, inputs: list[OutputEstimate]) -> int:
    """A range of a file for each split, or a slice of each block that a partition reads from the store."""
    stored = [one for one in inputs if one.put == "store"]
    match segment.feed:
        case FilesFeed(splits):
            return len(splits)
        case ItemsFeed() | RangeFeed():
            return 0
        case NarrowFeed(NodeData(form="scattered", groups=groups)):
            return own.partitions * sum(one.partitions for one in stored) // groups
        case BundleFeed(_, run):
            return own.partitions * run if stored else 0
        case AllFeed() | GroupFeed():
            return sum(one.partitions for one in stored)
    return own.partitions if stored else 0


def _moved(segment: Segment, inputs: list[OutputEstimate]) -> dict[str, int]:
    if isinstance(segment.feed, FilesFeed):
        return {}
    places = sorted({one.put for one in inputs if one.put})
    return {place: sum(one.size for one in inputs if one.put == place) for place in places}
