"""A world for triggers in memory: a Kafka cluster, Temporal with the store, a registry, and processes that may die.

Time is a number. Concurrent events of threads happen between two calls here: a start is written, then made, then
acknowledged, and each step may fail.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise
from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Record
from treadle.triggers.kafka.batch import KafkaBatch
from treadle.triggers.kafka.cluster_interface import BrokerUnreachable, Listener
from treadle.triggers.kafka.loop import TriggerLoop
from treadle.triggers.kafka.machine import TriggerMachine
from treadle.triggers.kafka.machine_events import (
    Bury,
    EffectDone,
    EffectFailed,
    Happening,
    Judged,
    KafkaPartition,
    OutOfRange,
    Reached,
    RunEnded,
    RunsCounted,
    Start,
    StartRefused,
)
from treadle.triggers.kafka.matching import Lineage, lineage
from treadle.triggers.registry.deployment import Deployment, Position

WORKFLOW, TRIGGER, TOPIC, GROUP = "orders", "live", "orders.v1", "g"
Outcome = Literal["done", "unreachable", "written", "unheard"]
"""The outcome of a start: made and acknowledged; not sent; only written; made, but the answer was lost."""


@dataclass
class Life:
    """A topic from its creation to its deletion."""

    id: str
    logs: list[list[Record]]
    low: list[int]
    history: list[Deployment] | None = None
    """The versions at its deletion. Later versions never get its records."""

    def partition(self, number: int) -> KafkaPartition:
        return KafkaPartition(TOPIC, self.id, number)

    def end(self, number: int) -> int:
        return len(self.logs[number])


@dataclass(eq=False)
class Owner:
    """A process with the trigger."""

    world: World
    name: int
    assigned: set[int] = field(default_factory=set)
    """Partitions that the group gave it."""
    gone: set[int] = field(default_factory=set)
    """Partitions that the group took from it while it was silent."""
    leaving: set[int] = field(default_factory=set)
    starts: list[Start] = field(default_factory=list)
    letters: list[Bury] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    paused: bool = False
    prompt: bool = True
    """True: running starts are answered while a handover waits for them."""

    def __post_init__(self) -> None:
        world = self.world
        machine = TriggerMachine(lambda number: self.known.batching(number), world.max_active, window=4)
        self.source = FakeSource(world, self)
        self.loop = TriggerLoop(machine, self._listening, self._look, self, world.marks, Inbox(self), world.clock)
        self.loop.tell(RunsCounted(0))  # counts lag, and only the limit depends on them

    def _listening(self, loop: TriggerLoop) -> FakeSource:
        self.source.listener = loop
        return self.source

    def _look(self) -> Lineage:
        self.known = self.world.lineage(self.world.history)
        return self.known

    def step(self) -> None:
        self.loop.step(self.paused)

    # -- Hands

    def start(self, order: Start) -> None:
        self.starts.append(order)

    def watch(self, run: str) -> None:
        self.watched.append(run)

    def bury(self, order: Bury) -> None:
        self.letters.append(order)

    def breathe(self) -> None:
        ended = [run for run in self.watched if run not in self.world.open]
        for run in ended:
            self.watched.remove(run)
            self.loop.tell(RunEnded(run))


class Inbox(queue.SimpleQueue[Happening]):
    """While a handover waits for it, time passes and starts are answered."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def get(self, block: bool = True, timeout: float | None = None) -> Happening:
        if self.empty() and timeout is not None:
            if self._owner.prompt and self._owner.starts:
                self._owner.world.answer(self._owner, 0, "done")
            self._owner.world.now += 0.7
        return super().get(block=False)


class FakeSource:
    """A member of the group, like `cluster`."""

    def __init__(self, world: World, owner: Owner) -> None:
        self._world, self._owner = world, owner
        self.listener: Listener
        self._placed: dict[int, KafkaPartition] = {}
        self._positions: dict[KafkaPartition, int] = {}
        self._still: set[KafkaPartition] = set()
        self._stuck: set[KafkaPartition] = set()

    @property
    def trouble(self) -> TreadleError | None:
        return BrokerUnreachable("down") if self._world.broker_down else None

    def poll(self, most: int, seconds: float) -> list[Record | OutOfRange | Reached]:
        world, owner = self._world, self._owner
        if world.broker_down:
            raise BrokerUnreachable("down")
        self._rebalance()
        found: list[Record | OutOfRange | Reached] = []
        for number, partition in list(self._placed.items()):
            if partition.topic_id != world.life.id:
                self.listener.lost([self._placed.pop(number)])
            elif partition not in self._still | self._stuck:
                found += self._fetch(partition, most - len(found))
        for number in sorted(owner.assigned - set(self._placed)):
            self._place(number)
        return found

    def _rebalance(self) -> None:
        owner = self._owner
        lost = [self._placed.pop(number) for number in sorted(owner.gone) if number in self._placed]
        owner.gone.clear()
        if lost:
            self.listener.lost(lost)
        leaving = sorted(owner.leaving)
        owner.leaving = set()
        self.listener.revoked([self._placed[number] for number in leaving if number in self._placed])
        for number in leaving:
            self._placed.pop(number, None)
            self._world.handed_over(owner, number)

    def _fetch(self, partition: KafkaPartition, most: int) -> list[Record | OutOfRange | Reached]:
        life = self._world.life
        position, low, end = self._positions[partition], life.low[partition.number], life.end(partition.number)
        if not low <= position <= end:
            self._stuck.add(partition)
            return [OutOfRange(partition, low, end)]
        some = life.logs[partition.number][position : position + min(most, self._world.portion)]
        self._positions[partition] = position + len(some)
        return list(some)

    def _place(self, number: int) -> None:
        partition = self._world.life.partition(number)
        offset, metadata = self._world.commits.get(number, (-1, ""))
        usable = offset >= 0 and metadata == partition.topic_id
        self._positions[partition] = self.listener.placed(partition, offset if usable else None)
        self._still.discard(partition)
        self._stuck.discard(partition)
        self._placed[number] = partition

    def commit(self, offsets: Mapping[KafkaPartition, int]) -> None:
        for partition, offset in offsets.items():
            self._world.commit(self._owner, partition, offset)

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        self._positions[partition] = offset
        self._stuck.discard(partition)

    def reading(self, partition: KafkaPartition, wanted: bool) -> None:
        (self._still.discard if wanted else self._still.add)(partition)

    def lag(self) -> int | None:
        return 0

    def close(self) -> None:
        self._owner.leaving |= set(self._placed)
        self._rebalance()


class World:
    """`filters`: the filters that versions choose from."""

    def __init__(self, trigger: Mapping[str, Any], partitions: int, max_active: int | None) -> None:
        self.now, self.max_active, self.partitions = 0.0, max_active, partitions
        self._base = dict(trigger)
        self._numbers = itertools.count(1)
        self.lives: list[Life] = []
        self._lineages: dict[tuple[int, bool], Lineage] = {}
        self.make_topic()
        self.history: list[Deployment] = []
        self.commits: dict[int, tuple[int, str]] = {}
        self.marks = FakeMarks()
        self.owners: list[Owner] = []
        self.heirs: dict[int, Owner | None] = {}
        self.written: dict[str, KafkaBatch] = {}
        """The store: the batch written for each run. The first writer wins."""
        self.runs: dict[str, KafkaBatch] = {}
        """Temporal: the batch of each run, in the order of starts."""
        self.open: set[str] = set()
        self.buried: list[Record] = []
        self.expired: set[tuple[str, int, int]] = set()
        self.temporal_down = self.broker_down = False
        self.portion = 2
        """Records of a partition in one poll."""
        self.deploy(trigger)
        self.settle()

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    # -- Kafka

    def make_topic(self) -> None:
        if self.lives:
            self.life.history = list(self.history)
            for number, log in enumerate(self.life.logs):
                self.expired |= {(self.life.id, number, record.offset) for record in log}
        self.lives.append(Life(f"life{len(self.lives)}", [[] for _ in range(self.partitions)], [0] * self.partitions))

    def produce(self, number: int, value: bytes | None) -> None:
        log = self.life.logs[number]
        log.append(Record(TOPIC, self.life.id, number, len(log), None, value, (), 1.0))

    def expire(self, number: int, before: int) -> None:
        """Delete the records below an offset."""
        low = max(self.life.low[number], min(before, self.life.end(number)))
        self.expired |= {(self.life.id, number, offset) for offset in range(low)}
        self.life.low[number] = low

    def assign(self, number: int, to: Owner | None, *, silently: bool) -> None:
        """Give a partition to another owner, with a handover or (silently) without the knowledge of its owner."""
        for owner in self.owners:
            if number in owner.assigned:
                owner.assigned.discard(number)
                if silently:
                    owner.leaving.discard(number)
                    owner.gone.add(number)
                else:
                    owner.leaving.add(number)
                    self.heirs[number] = to
                    return
        if to is not None and not any(number in owner.leaving for owner in self.owners):
            to.assigned.add(number)

    def handed_over(self, owner: Owner, number: int) -> None:
        heir = self.heirs.pop(number, None)
        if heir is not None and heir in self.owners and not any(number in one.assigned for one in self.owners):
            heir.assigned.add(number)

    def commit(self, owner: Owner, partition: KafkaPartition, offset: int) -> None:
        """Accepted from the group's member only, and never beyond the finished records."""
        member = owner in self.owners and (partition.number in owner.assigned or partition.number not in owner.gone)
        held_by_other = any(partition.number in one.assigned for one in self.owners if one is not owner)
        if self.broker_down or not member or held_by_other:
            raise BrokerUnreachable("not a member")
        life = next(one for one in self.lives if one.id == partition.topic_id)
        for record in life.logs[partition.number][life.low[partition.number] : offset]:
            self.check_done(record)
        self.commits[partition.number] = (offset, partition.topic_id)

    # -- Temporal and the store

    def answer(self, owner: Owner, index: int, outcome: Outcome) -> None:
        """Let one start of an owner have an outcome."""
        order = owner.starts.pop(index)
        batch = order.batch
        if outcome == "unreachable" or (self.temporal_down and outcome in ("done", "unheard")):
            owner.loop.tell(EffectFailed(order.ticket, "down"))
            return
        if any(b'"refused"' in (one.record.value or b"") for one in batch.matched) and batch.run not in self.written:
            owner.loop.tell(StartRefused(order.ticket, "these inputs will never do"))
            return
        kept = self.written.setdefault(batch.run, batch)
        if outcome == "written":
            owner.loop.tell(EffectFailed(order.ticket, "it fell silent"))
            return
        if batch.run not in self.runs:
            self.check_order(kept)
            self.runs[batch.run] = kept
            self.open.add(batch.run)
        if outcome == "unheard":
            owner.loop.tell(EffectFailed(order.ticket, "the answer was lost"))
            return
        memo = {"end": self.runs[batch.run].end} if self.batched(kept) else {}
        owner.loop.tell(EffectDone(order.ticket, memo))

    def batched(self, batch: KafkaBatch) -> bool:
        return self.lineage(self.history[: batch.version]).newest.reading.batch is not None

    def write(self, owner: Owner, index: int, works: bool) -> None:
        """Let one dead letter of an owner be written or fail."""
        order = owner.letters.pop(index)
        if works and not self.broker_down:
            self.buried.append(order.record)
            owner.loop.tell(EffectDone(order.ticket))
        else:
            owner.loop.tell(EffectFailed(order.ticket, "down"))

    # -- the registry

    def deploy(self, trigger: Mapping[str, Any]) -> None:
        """Deploy a visible version that has no measured offsets yet."""
        document = {
            "apiVersion": "treadle/v1",
            "name": WORKFLOW,
            "inputs": {"orders": {"type": "dataset", "required": True}},
            "triggers": {TRIGGER: {**self._base, **trigger}},
            "stages": {"x": {"type": "map", "input": "inputs.orders", "uses": "m:f"}},
        }
        spec = Spec.model_validate(document, by_alias=True, by_name=False)
        number = len(self.history) + 1
        self.history.append(Deployment(WORKFLOW, number, 0.0, normalise(spec), {}, "", "/"))

    def settle(self) -> None:
        """Let the newest version begin at the present ends, and the first one at the beginning."""
        newest = self.history[-1]
        if newest.begins is None:
            ends = [self.life.end(number) if newest.version > 1 else 0 for number in range(self.partitions)]
            begins = tuple(Position(TOPIC, self.life.id, number, end) for number, end in enumerate(ends))
            self.history[-1] = msgspec.structs.replace(newest, begins={TRIGGER: begins})

    # -- invariants

    def verdict(self, record: Record) -> Judged:
        life = next(one for one in self.lives if one.id == record.topic_id)
        versions = [one for one in life.history or self.history if one.begins is not None]
        return self.lineage(versions).judge(record)

    def lineage(self, versions: Sequence[Deployment]) -> Lineage:
        """The lineage, cached since it is requested often. Raises Unsettled."""
        key = (len(versions), versions[-1].begins is None)
        if key not in self._lineages:
            found = lineage(versions, TRIGGER)
            assert found is not None
            self._lineages[key] = found
        return self._lineages[key]

    def check_done(self, record: Record) -> None:
        """All records below a committed offset must be done."""
        if self.history[-1].begins is None:
            return
        judged = self.verdict(record)
        if judged.matches:
            assert self.holders(record) or record in self.buried, f"committed, not started: {record}"
        elif judged.reason:
            assert record in self.buried, f"committed, no dead letter: {record}"

    def holders(self, record: Record) -> list[str]:
        """Runs with this record, or with one that is the same event."""
        judged = self.verdict(record)
        return [
            name
            for name, batch in self.runs.items()
            if any(one.record == record for one in batch.matched) or name in [match.run for match in judged.matches]
        ]

    def check_order(self, batch: KafkaBatch) -> None:
        """With `maxActive: 1` the runs of a partition must follow each other in order."""
        if self.max_active != 1:
            return
        place = (batch.first.topic_id, batch.first.partition)
        for name, other in self.runs.items():
            if (other.first.topic_id, other.first.partition) == place:
                assert name not in self.open, f"{batch.run} starts while {name} is open"
                assert other.first.offset < batch.first.offset, f"{batch.run} starts after {name}"

    def check_end(self) -> None:
        """Every record must be handled: exactly one run for each event, at least one letter for each dead record."""
        for life in self.lives:
            for log in life.logs:
                for record in log:
                    self._check_record(record)

    def _check_record(self, record: Record) -> None:
        judged, holders = self.verdict(record), self.holders(record)
        excused = (record.topic_id, record.partition, record.offset) in self.expired
        refused = b'"refused"' in (record.value or b"")
        if judged.matches:
            assert len(holders) <= 1, f"{record} is in {holders}"
            assert holders or excused or (refused and record in self.buried), f"nothing was started for {record}"
            assert refused or record not in self.buried, f"{record} is a dead letter for its neighbours"
        elif judged.reason:
            assert not holders, f"{record} is a dead letter, and in {holders}"
            assert record in self.buried or excused, f"no dead letter for {record}"
        else:
            assert not holders, f"{record} does not match, and is in {holders}"
            assert record not in self.buried, f"{record} does not match, and is a dead letter"


class FakeMarks:
    def __init__(self) -> None:
        self.known: dict[KafkaPartition, int] = {}

    def load(self, partition: KafkaPartition) -> int | None:
        return self.known.get(partition)

    def save(self, partition: KafkaPartition, offset: int) -> None:
        self.known[partition] = offset

    def leave(self, partitions: Iterable[KafkaPartition]) -> None:
        pass
