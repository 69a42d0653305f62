"""The usage of a run so far, from its ledgers. Needs no driver.

The cost of resident workers while they wait, from the first task of a run on them. Pure.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from msgspec import structs

from treadle.executors.interface import Capabilities
from treadle.executors.program import Charge, Outcome
from treadle.primitives.errors import MissingError
from treadle.primitives.run_paths import parent_run
from treadle.primitives.stores.input_files import is_local

from ..dispatcher.ledger.attempt_records import AttemptRecord
from ..dispatcher.ledger.ledger import Committed, Started, read_from
from ..dispatcher.segments.open_segment import open_segment
from ..plan.plan import CALLS, Graph, LoopNode, Plan, Segment, node_of
from ..run_store.call_log import CallIndex, CallLog
from ..run_store.run_files import RunFiles, read_requests
from .bill import BillLine
from .estimate import HEARTBEAT_SECONDS
from .usage import GIGABYTE, Usage, memory_given, temporary_given


class Worked(NamedTuple):
    """An attempt on a resident worker."""

    slot: str
    begin: float
    """Seconds since the epoch, by the worker's clock."""
    end: float
    memory: int
    """The worker's memory in bytes."""


def idle_line(executor: str, kind: str, attempts: Iterable[Worked], kept: float, now: float) -> BillLine | None:
    """The idle time of one executor's workers between a run's attempts and after them. None: no worker has waited.

    A worker without a task lives for `kept` seconds. A longer gap means that this worker ended and another began.
    Tasks of other runs in a gap are not visible here, so two runs may both be charged for the same second.
    """
    waited = [(seconds, memory) for seconds, memory in _gaps(attempts, kept, now) if seconds > 0]
    if not waited:
        return None
    seconds = sum(seconds for seconds, _ in waited)
    given = sum(seconds * memory for seconds, memory in waited) / GIGABYTE
    return BillLine(f"(idle, {executor})", executor, kind, Usage(seconds=seconds, gigabyte_seconds=given))


def _gaps(attempts: Iterable[Worked], kept: float, now: float) -> Iterator[tuple[float, int]]:
    """(seconds, memory) of the gap after each attempt on each slot."""
    slots: dict[str, list[Worked]] = defaultdict(list)
    for one in sorted(attempts, key=lambda one: one.begin):
        slots[one.slot].append(one)
    for worked in slots.values():
        for one, following in pairwise(worked):
            yield min(following.begin - one.end, kept), one.memory
        yield min(now - worked[-1].end, kept), worked[-1].memory


EVENTS = 6
"""Events in the history for each activity: three of the activity, three of the workflow task that follows."""


@dataclass
class _Sum:
    """Sums over the attempts at one segment in all iterations."""

    started: int = 0
    committed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    given: float = 0.0
    """Bytes of memory times seconds."""
    charged: float = 0.0
    """Seconds charged for: of calls where there are any, else of attempts."""
    calls: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    partitions: set[int] = field(default_factory=set)

    def add(self, outcome: Outcome, memory: int) -> None:
        self.committed += 1
        self.cpu_seconds += outcome.cpu_seconds
        self.took(outcome.seconds, memory, outcome.requests, outcome.charge)
        self.moved.update(outcome.read)
        self.partitions.add(outcome.partition)

    def took(self, seconds: float, memory: int, requests: Mapping[str, int], charge: Charge | None) -> None:
        """Add an attempt, committed or failed."""
        paid, size = (seconds, memory) if charge is None else (charge.seconds, charge.memory)
        self.seconds += seconds
        self.charged += paid
        self.given += paid * size
        self.calls += charge.calls if charge else 0
        self.requests.update(requests)


class Spending:
    """The usage of a run so far. Reads each object of the ledgers once. Needs no driver."""

    def __init__(self, files: RunFiles, plan: Plan, executors: Mapping[str, Capabilities]) -> None:
        """`executors`: of the profile. The calls of a session may name one that is not in its plan."""
        self._files, self._plan, self._executors = files, plan, executors
        self._calls = CallLog(files)
        self._functions = CallIndex()
        self._ledgers = dict(_ledgers(plan.graph))
        self._read: dict[str, int] = {}
        self._sums: dict[str, _Sum] = defaultdict(_Sum)
        self._segments = {name: one for found in self._ledgers.values() for name, one in found.items()}
        self._worked: dict[str, set[Worked]] = defaultdict(set)
        """Executor with resident workers -> attempts there."""

    def lines(
        self, failed: Iterable[AttemptRecord] = (), events: int = 0, seconds_of_run: float = 0.0
    ) -> list[BillLine]:
        """A line for each segment that has begun. Blocking.

        `failed`: the log of attempts, for the usage of failed attempts. `events` of the run's history and
        `seconds_of_run` give the number of the orchestrator's actions.
        """
        self._add_functions()
        lost: dict[str, _Sum] = defaultdict(_Sum)
        for record in failed:
            if record.failure and node_of(record.segment) in self._segments:
                segment = self._segments[node_of(record.segment)]
                memory = self._memory(segment, record.peak_memory)
                seconds = max(0.0, record.time - record.started) if record.started else 0.0
                lost[segment.id].took(seconds, memory, record.requests, record.charge)
                if record.started:
                    self._note(segment, record.slot, record.started, record.time, memory)
        lines = [BillLine("(run)", "", "", self._of_driver(actions_of(events, seconds_of_run)))]
        for node, segments in self._ledgers.items():
            wide = any(segment.group for segment in segments.values())
            for chain in self._files.ledgers(node) if wide else [self._files.segment(node)]:
                self._follow(chain, segments)
            lines += [self._line(segment, lost[name]) for name, segment in segments.items() if name in self._sums]
        return lines + self._idle()

    def _add_functions(self) -> None:
        """Of a session: a segment for each function that its calls name."""
        for calls in (one for one in self._plan.graph.nodes if isinstance(one, Segment) and one.id == CALLS):
            for record in self._calls.read():
                self._functions.add(record)
            for name, function in self._functions.functions.items():
                can = self._can(function.executor or calls.policy.executor)
                self._segments[name] = open_segment(name, function, calls.policy.executor, can)
            self._ledgers[calls.id] = self._segments

    def _can(self, executor: str) -> Capabilities:
        known = self._plan.executors.get(executor) or self._executors.get(executor)
        return known or Capabilities(executor, slots=0, shares_host=False)  # the profile no longer has it

    def _follow(self, chain: str, segments: Mapping[str, Segment]) -> None:
        number = self._read.get(chain, 0)
        try:
            records, self._read[chain] = read_from(self._files.store, chain, self._files.key, number)
        except MissingError:
            return
        for record in records:
            if isinstance(record, Committed):
                segment, outcome = segments[node_of(record.segment)], record.outcome
                memory = self._memory(segment, outcome.peak_memory)
                self._sums[segment.id].add(outcome, memory)
                self._note(segment, outcome.slot, outcome.started, outcome.started + outcome.seconds, memory)
            elif isinstance(record, Started):
                self._sums[node_of(record.segment)].started += len(record.attempts)

    def _note(self, segment: Segment, slot: str, begin: float, end: float, memory: int) -> None:
        if self._can(segment.policy.executor).kept and begin:
            self._worked[segment.policy.executor].add(Worked(slot, begin, end, memory))

    def _idle(self) -> list[BillLine]:
        now = time.time()
        known = [(name, self._can(name), worked) for name, worked in sorted(self._worked.items())]
        found = [idle_line(name, can.kind, worked, can.kept, now) for name, can, worked in known]
        return [line for line in found if line is not None]

    def _memory(self, segment: Segment, peak: int = 0) -> int:
        can = self._can(segment.policy.executor)
        return memory_given(can, segment.policy.memory_start, peak)

    @property
    def unknown(self) -> list[str]:
        """Usage that nothing has measured."""
        shared = not is_local(self._files.store.url) and not parent_run(self._files.run)
        return ["requests of the driver"] if shared and read_requests(self._files) is None else []

    def _of_driver(self, actions: int) -> Usage:
        """The usage of a child run counts with its parent."""
        made = {} if parent_run(self._files.run) else read_requests(self._files) or {}
        return _with_requests(Usage(actions=actions), made)

    def _line(self, segment: Segment, lost: _Sum) -> BillLine:
        known, can = self._sums[segment.id], self._can(segment.policy.executor)
        charged = known.charged + lost.charged
        usage = Usage(
            max(known.started, known.committed),
            known.seconds + lost.seconds,
            known.cpu_seconds,
            (known.given + lost.given) / GIGABYTE,
            moved=dict(sorted(known.moved.items())),
            calls=known.calls + lost.calls,
            temporary=temporary_given(can, charged) if can.sizes else 0.0,
        )
        usage = _with_requests(usage, known.requests + lost.requests)
        name = segment.policy.executor
        return BillLine(segment.id, name, can.kind, usage, len(known.partitions), measured=usage.calls > 0)


def _with_requests(usage: Usage, made: Mapping[str, int]) -> Usage:
    gets = made.get("get", 0) + made.get("head", 0)
    lists, deletes = made.get("list", 0), made.get("delete", 0)
    return structs.replace(usage, puts=made.get("put", 0), gets=gets, lists=lists, deletes=deletes)


def actions_of(events: int, seconds: float) -> int:
    """The number of Temporal actions: six events of the history make one activity. Heartbeats leave no events."""
    return math.ceil(events / EVENTS) + math.ceil(seconds / HEARTBEAT_SECONDS)


def _ledgers(graph: Graph) -> Iterator[tuple[str, dict[str, Segment]]]:
    """Each node that has a ledger, with the segments in it. A loop's ledger holds all segments inside the loop."""
    for node in graph.nodes:
        if isinstance(node, Segment):
            yield node.id, {node.id: node}
        elif isinstance(node, LoopNode):
            yield node.id, {one.id: one for one in node.body.walk() if isinstance(one, Segment)}
