"""What a run has taken so far, from its ledgers: no driver is needed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from treadle.executors.interface import Capabilities
from treadle.executors.program import Outcome
from treadle.primitives.errors import MissingError

from ..dispatcher.attempts import AttemptRecord
from ..dispatcher.ledger import Committed, Record, Started, read
from ..plan import FilesFeed, Graph, Loop, NarrowFeed, NodeData, Plan, Segment
from ..runfiles import RunFiles
from .bill import Line
from .estimate import HEARTBEAT_SECONDS, PER_CALL
from .usage import GIGABYTE, Usage, memory_given

EVENTS = 6
"""Of the history, for each activity: three of its own, three of the workflow task that follows."""


def spent(files: RunFiles, plan: Plan, failed: Iterable[AttemptRecord], events: int, seconds: float) -> list[Line]:
    """A line for each segment that has begun. Blocking.

    `failed`: the log of attempts, for what those that failed took; `events` of the run's history and the `seconds` it
    has taken tell the orchestrator's actions.
    """
    lost: dict[str, float] = defaultdict(float)
    for record in failed:
        if record.failure and record.started:
            lost[_node(record.segment)] += max(0.0, record.time - record.started)
    lines = [Line("(run)", "", "", Usage(actions=actions_of(events, seconds)))]
    stored: dict[str, int] = {}
    for node, segments in _ledgers(plan.graph):
        records = _records(files, node)
        lines += [line for line in _of_ledger(records, segments, plan.executors, lost, stored) if line.usage.attempts]
    return lines


def actions_of(events: int, seconds: float) -> int:
    """About six events of the history are one activity, which is one action; its heartbeats leave no events."""
    return math.ceil(events / EVENTS) + math.ceil(seconds / HEARTBEAT_SECONDS)


def _ledgers(graph: Graph) -> Iterator[tuple[str, dict[str, Segment]]]:
    """Each node with a ledger of its own, and the segments in that: a loop's are all those inside of it."""
    for node in graph.nodes:
        if isinstance(node, Segment):
            yield node.id, {node.id: node}
        elif isinstance(node, Loop):
            yield node.id, dict(_inside(node.body))


def _inside(graph: Graph) -> Iterator[tuple[str, Segment]]:
    for node in graph.nodes:
        if isinstance(node, Segment):
            yield node.id, node
        elif isinstance(node, Loop):
            yield from _inside(node.body)


def _records(files: RunFiles, node: str) -> list[Record]:
    try:
        return read(files.store, files.segment(node), files.key)
    except MissingError:
        return []


def _of_ledger(
    records: list[Record],
    segments: Mapping[str, Segment],
    executors: Mapping[str, Capabilities],
    lost: Mapping[str, float],
    stored: dict[str, int],
) -> Iterator[Line]:
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    starts: dict[str, int] = defaultdict(int)
    for record in records:
        if isinstance(record, Committed):
            outcomes[_node(record.segment)].append(record.outcome)
        elif isinstance(record, Started):
            starts[_node(record.segment)] += len(record.attempts)
    for name, segment in segments.items():
        can = executors[segment.policy.executor]
        stored[name] = sum(_in_store(one) for one in outcomes[name])
        reads = _gets(segment, outcomes[name], stored)
        usage = _usage(segment, can, outcomes[name], reads, max(starts[name], len(outcomes[name])), lost.get(name, 0.0))
        yield Line(name, segment.policy.executor, can.name, usage, len({one.partition for one in outcomes[name]}))


def _usage(
    segment: Segment, can: Capabilities, outcomes: list[Outcome], gets: int, attempts: int, lost: float
) -> Usage:
    asked = segment.policy.memory_start
    seconds = sum(one.seconds for one in outcomes)
    given = sum(one.seconds * memory_given(can, asked, one.peak_memory) for one in outcomes)
    moved: dict[str, int] = defaultdict(int)
    for one in outcomes:
        for place, size in one.read.items():
            moved[place] += size
    return Usage(
        attempts,
        seconds + lost,
        sum(one.cpu_seconds for one in outcomes),
        (given + lost * memory_given(can, asked)) / GIGABYTE,
        sum(map(_puts, outcomes)) + (PER_CALL * attempts if can.sizes else 0),
        gets,
        dict(sorted(moved.items())),
    )


def _puts(outcome: Outcome) -> int:
    return _in_store(outcome) + (outcome.part is not None) + (outcome.failed_items is not None)


def _in_store(outcome: Outcome) -> bool:
    return outcome.block is not None and "store" in outcome.block.locations


def _gets(segment: Segment, outcomes: list[Outcome], stored: Mapping[str, int]) -> int:
    """A range of a file for each partition; of a shuffle a part of each stored block; else each stored block once."""
    feed = segment.feed
    if isinstance(feed, FilesFeed):
        return len(outcomes)
    blocks = sum(stored.get(need, 0) for need in segment.data)
    if isinstance(feed, NarrowFeed) and isinstance(feed.data, NodeData) and feed.data.form == "scattered":
        return blocks * len(outcomes) // feed.data.groups
    return blocks


def _node(segment: str) -> str:
    """`lloyd-3/assign` is the segment `assign`."""
    return segment.rpartition("/")[2]
