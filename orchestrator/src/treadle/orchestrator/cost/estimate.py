"""What a run will take, from its plan: each step of the formula is a function here, and docs/cost.md says it in words.
Pure."""

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
    Loop,
    NarrowFeed,
    NodeData,
    Plan,
    RangeFeed,
    Segment,
)
from .bill import Line
from .usage import GIGABYTE, Usage, memory_given, temporary_given

LEDGER_SECONDS = 0.05
"""Commits within so long share an object of the ledger."""
HEARTBEAT_SECONDS = 1.0
"""Between two heartbeats of an activity that the server hears of."""
PER_CALL = 2
"""Objects that a call of a function leaves beside its block: that it was made, and its reports."""
RUN_ACTIONS = 3
"""The workflow, the activity that opens the run, and its end."""


class Assumed(Struct, frozen=True):
    """What is supposed where nobody knows."""

    bytes: int = 0
    """That each source of files has; 0: they are listed."""
    slots: int = 0
    """Of every executor; 0: what it has."""
    rate: int = 50 << 20
    """Bytes that one task reads, works on and writes in a second."""
    start: float = 0.5
    """Seconds that an attempt takes beside its data: a call, a warm sandbox, the first byte from a store."""
    made: dict[str, int] = {}
    """Bytes that a stage makes in all, by its name; else as many as the plan guesses."""


class Shape(Struct, frozen=True):
    """What the formula needs to know of the segments before one."""

    partitions: int
    """Known, or taken to be as many as the slots."""
    size: int
    """Bytes that come out."""
    planned: int
    """The same by the plan alone."""
    put: str


def estimate(plan: Plan, assumed: Assumed) -> list[Line]:
    """A line for each segment, loops by their most iterations, and one for the run itself and for each child.

    Of a child that is planned when it starts there is no more to be known.
    """
    run = Line("(run)", "", "", Usage(actions=RUN_ACTIONS))
    return [run, *_lines(plan.graph, plan.executors, assumed, 1, {})]


def elapsed(plan: Plan, lines: list[Line]) -> float:
    """Seconds that the run takes at least: the longest way through its nodes, each after those it waits for."""
    took = {line.node: line.elapsed for line in lines}
    return _longest(plan.graph, took)


def _longest(graph: Graph, took: Mapping[str, float]) -> float:
    ends: dict[str, float] = {}
    for node in graph.nodes:
        begins = max((ends.get(need, 0.0) for need in {*node.data, *node.after}), default=0.0)
        own = took.get(node.id, 0.0)
        if isinstance(node, Loop):
            own = _longest(node.body, took)
        elif isinstance(node, Child) and node.graph is not None:
            below = f"{node.id}/"
            own = _longest(
                node.graph, {name.removeprefix(below): took[name] for name in took if name.startswith(below)}
            )
        ends[node.id] = begins + own
    return max(ends.values(), default=0.0)


def _lines(
    graph: Graph, executors: Mapping[str, Capabilities], assumed: Assumed, times: int, known: dict[str, Shape]
) -> Iterator[Line]:
    for node in graph.nodes:
        if isinstance(node, Loop):
            yield from _lines(node.body, executors, assumed, times * node.max_iterations, known)
        elif isinstance(node, Child):
            yield Line(node.id, "", "", Usage(actions=RUN_ACTIONS))
            inner = _lines(node.graph, executors, assumed, times, {}) if node.graph is not None else ()
            yield from (structs.replace(line, node=f"{node.id}/{line.node}") for line in inner)
        elif isinstance(node, Segment):
            can = executors[node.policy.executor]
            slots = assumed.slots or can.slots
            known[node.id] = _shape(node, slots, assumed, known)
            yield _line(node, can, slots, assumed, times, known)


def _shape(segment: Segment, slots: int, assumed: Assumed, known: Mapping[str, Shape]) -> Shape:
    """What a stage is assumed to make changes what all those after it make, in proportion."""
    before = _feeding(segment, known)
    planned = sum(one.planned for one in before)
    share = sum(one.size for one in before) / planned if planned else 1.0
    made = [assumed.made[stage] for stage in (segment.id, *segment.stages[::-1]) if stage in assumed.made]
    size = made[0] if made else int(segment.estimate * share)
    put = "" if isinstance(segment.tail, Discard) else segment.put
    partitions = segment.partitions or max((one.partitions for one in before), default=slots)
    return Shape(partitions, size, segment.estimate, put)


def _feeding(segment: Segment, known: Mapping[str, Shape]) -> list[Shape]:
    """What its partitions read; broadcasts, which a warm worker keeps, are left out."""
    data = getattr(segment.feed, "data", None)
    if data is None:
        return []
    nodes = data.nodes if isinstance(data, NodeData) else segment.data
    return [known[need] for need in nodes if need in known]


def _line(
    segment: Segment, can: Capabilities, slots: int, assumed: Assumed, times: int, known: Mapping[str, Shape]
) -> Line:
    own, inputs = known[segment.id], _feeding(segment, known)
    limit = segment.policy.max_concurrency or own.partitions
    waves = math.ceil(own.partitions / max(1, min(slots, limit)))
    each = assumed.start + (_bytes_in(segment, inputs) + own.size) / own.partitions / assumed.rate
    memory = memory_given(can, segment.policy.memory_start)
    usage = _repeated(_usage(segment, can, own, inputs, each, waves * each), times)
    name, late = segment.policy.executor, 0 < can.time_limit < each
    return Line(segment.id, name, can.kind, usage, own.partitions, waves, times * waves * each, memory, late)


def _usage(segment: Segment, can: Capabilities, own: Shape, inputs: list[Shape], each: float, elapsed: float) -> Usage:
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
    """In every iteration of the loops around it, which are one activity."""
    grown = {name: getattr(usage, name) * times for name in usage.__struct_fields__ if name not in ("moved", "actions")}
    return structs.replace(usage, **grown, moved={place: size * times for place, size in usage.moved.items()})


def _bytes_in(segment: Segment, inputs: list[Shape]) -> int:
    if isinstance(segment.feed, FilesFeed):
        return sum(split.stop - split.start for split in segment.feed.splits)
    return sum(one.size for one in inputs)


def _puts(segment: Segment, can: Capabilities, own: Shape, seconds: float) -> int:
    """A block and a part for each partition, the ledger, and what calls of functions leave."""
    blocks = own.partitions * ((own.put == "store") + (segment.output is not None))
    calls = PER_CALL * own.partitions if can.sizes and not can.kept else 0
    return blocks + calls + 2 + min(own.partitions, math.ceil(seconds / LEDGER_SECONDS))


def _gets(segment: Segment, own: Shape, inputs: list[Shape]) -> int:
    """A range of a file, or a part of each block that a partition reads from the store."""
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


def _moved(segment: Segment, inputs: list[Shape]) -> dict[str, int]:
    if isinstance(segment.feed, FilesFeed):
        return {}
    places = sorted({one.put for one in inputs if one.put})
    return {place: sum(one.size for one in inputs if one.put == place) for place in places}
