"""What a run has taken so far, from its ledgers: no driver is needed."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from treadle.executors.program import Outcome
from treadle.primitives.errors import MissingError

from ..dispatcher.record.attempts import AttemptRecord
from ..dispatcher.record.ledger import Committed, Started, read_from
from ..plan import FilesFeed, Graph, Loop, NarrowFeed, NodeData, Plan, Segment
from ..runfiles import RunFiles
from .bill import Line
from .estimate import HEARTBEAT_SECONDS, PER_CALL
from .idle import Worked, idle_line
from .usage import GIGABYTE, Usage, memory_given

EVENTS = 6
"""Of the history, for each activity: three of its own, three of the workflow task that follows."""


@dataclass
class _Sum:
    """Of the attempts at one segment, in all iterations."""

    started: int = 0
    committed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    given: float = 0.0
    """Bytes of memory times seconds."""
    puts: int = 0
    stored: int = 0
    """Blocks in the store."""
    moved: Counter[str] = field(default_factory=Counter)
    partitions: set[int] = field(default_factory=set)

    def add(self, outcome: Outcome, memory: int) -> None:
        in_store = outcome.block is not None and "store" in outcome.block.locations
        self.committed += 1
        self.seconds += outcome.seconds
        self.cpu_seconds += outcome.cpu_seconds
        self.given += outcome.seconds * memory
        self.puts += in_store + (outcome.part is not None) + (outcome.failed_items is not None)
        self.stored += in_store
        self.moved.update(outcome.read)
        self.partitions.add(outcome.partition)


class Spending:
    """What a run has taken so far, from its ledgers, whose objects are read once each: no driver is needed."""

    def __init__(self, files: RunFiles, plan: Plan) -> None:
        self._files, self._plan = files, plan
        self._ledgers = dict(_ledgers(plan.graph))
        self._read: dict[str, int] = {}
        self._sums: dict[str, _Sum] = defaultdict(_Sum)
        self._segments = {name: one for found in self._ledgers.values() for name, one in found.items()}
        self._worked: dict[str, set[Worked]] = defaultdict(set)
        """executor whose workers stay -> attempts there."""

    def lines(self, failed: Iterable[AttemptRecord] = (), events: int = 0, seconds: float = 0.0) -> list[Line]:
        """A line for each segment that has begun. Blocking.

        `failed`: the log of attempts, for what those that failed took; `events` of the run's history and the `seconds`
        it has taken tell the orchestrator's actions.
        """
        lost: dict[str, float] = defaultdict(float)
        for record in failed:
            if record.failure and record.started and _node(record.segment) in self._segments:
                segment = self._segments[_node(record.segment)]
                lost[segment.id] += max(0.0, record.time - record.started)
                self._note(segment, record.slot, record.started, record.time, self._memory(segment, record.peak_memory))
        lines = [Line("(run)", "", "", Usage(actions=actions_of(events, seconds)))]
        for node, segments in self._ledgers.items():
            wide = any(segment.group for segment in segments.values())
            for chain in self._files.ledgers(node) if wide else [self._files.segment(node)]:
                self._follow(chain, segments)
            lines += [self._line(segment, lost[name]) for name, segment in segments.items() if name in self._sums]
        return lines + self._idle()

    def _follow(self, chain: str, segments: Mapping[str, Segment]) -> None:
        number = self._read.get(chain, 0)
        try:
            records, self._read[chain] = read_from(self._files.store, chain, self._files.key, number)
        except MissingError:
            return
        for record in records:
            if isinstance(record, Committed):
                segment, outcome = segments[_node(record.segment)], record.outcome
                memory = self._memory(segment, outcome.peak_memory)
                self._sums[segment.id].add(outcome, memory)
                self._note(segment, outcome.slot, outcome.started, outcome.started + outcome.seconds, memory)
            elif isinstance(record, Started):
                self._sums[_node(record.segment)].started += len(record.attempts)

    def _note(self, segment: Segment, slot: str, begin: float, end: float, memory: int) -> None:
        if self._plan.executors[segment.policy.executor].kept and begin:
            self._worked[segment.policy.executor].add(Worked(slot, begin, end, memory))

    def _idle(self) -> list[Line]:
        now = time.time()
        known = [(name, self._plan.executors[name], worked) for name, worked in sorted(self._worked.items())]
        found = [idle_line(name, can.name, worked, can.kept, now) for name, can, worked in known]
        return [line for line in found if line is not None]

    def _memory(self, segment: Segment, peak: int = 0) -> int:
        can = self._plan.executors[segment.policy.executor]
        return memory_given(can, segment.policy.memory_start, peak)

    def _line(self, segment: Segment, lost: float) -> Line:
        known, can = self._sums[segment.id], self._plan.executors[segment.policy.executor]
        attempts = max(known.started, known.committed)
        usage = Usage(
            attempts,
            known.seconds + lost,
            known.cpu_seconds,
            (known.given + lost * self._memory(segment)) / GIGABYTE,
            known.puts + (PER_CALL * attempts if can.sizes and not can.kept else 0),
            self._gets(segment, known),
            dict(sorted(known.moved.items())),
        )
        return Line(segment.id, segment.policy.executor, can.name, usage, len(known.partitions))

    def _gets(self, segment: Segment, known: _Sum) -> int:
        """A range of a file for each partition; of a shuffle a part of each stored block; else each stored block."""
        feed = segment.feed
        if isinstance(feed, FilesFeed):
            return known.committed
        blocks = sum(self._sums[need].stored for need in segment.data if need in self._sums)
        if isinstance(feed, NarrowFeed) and isinstance(feed.data, NodeData) and feed.data.form == "scattered":
            return blocks * known.committed // feed.data.groups
        return blocks


def actions_of(events: int, seconds: float) -> int:
    """About six events of the history are one activity, which is one action; its heartbeats leave no events."""
    return math.ceil(events / EVENTS) + math.ceil(seconds / HEARTBEAT_SECONDS)


def _ledgers(graph: Graph) -> Iterator[tuple[str, dict[str, Segment]]]:
    """Each node with a ledger of its own, and the segments in that: a loop's are all those inside of it."""
    for node in graph.nodes:
        if isinstance(node, Segment):
            yield node.id, {node.id: node}
        elif isinstance(node, Loop):
            yield node.id, {one.id: one for one in node.body.walk() if isinstance(one, Segment)}


def _node(segment: str) -> str:
    """`lloyd-3/assign` is the segment `assign`."""
    return segment.rpartition("/")[2]
