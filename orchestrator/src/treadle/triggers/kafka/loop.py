"""The loop of one trigger, in a thread of its own: poll, decide on records, update the machine, perform its
instructions.

Starts are passed to an event loop. Their answers come back through the inbox, which any thread may fill.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Record

from .cluster_interface import ConsumerBroken, EventSource
from .machine import Backoff, TriggerMachine
from .machine_events import (
    Arrived,
    Assigned,
    Bury,
    Commit,
    CommitFailed,
    Happening,
    Instruction,
    Judged,
    KafkaPartition,
    Note,
    OutOfRange,
    PartitionsLost,
    PauseChanged,
    Reached,
    Revoked,
    Seek,
    Start,
    WantRecords,
    WatchRun,
)
from .matching import Lineage

_log = logging.getLogger("treadle.triggers")
MOST = 500
"""Maximum records of one poll, and maximum undecided records."""
JUDGING = 1.0
"""Maximum seconds of one turn for deciding on records. The rest waits for the next turn, so that answers are
processed."""
IDLE, BUSY = 0.1, 0.02
"""Seconds that a poll waits; fewer while answers are expected."""


class Hands(Protocol):
    """The effects that the loop delegates. No method may block."""

    def start(self, order: Start) -> None:
        """Start a run, and report the result to the loop."""
        ...

    def watch(self, run: str) -> None:
        """Report the end of the run to the loop."""
        ...

    def bury(self, order: Bury) -> None:
        """Write a dead letter, and report the result to the loop."""
        ...

    def breathe(self) -> None:
        """Called in every turn. Raises ConsumerBroken."""
        ...


class Marks(Protocol):
    """Our own record of completed offsets, because Kafka forgets offsets of groups that are idle for a week."""

    def load(self, partition: KafkaPartition) -> int | None: ...

    def save(self, partition: KafkaPartition, offset: int) -> None: ...

    def leave(self, partitions: Iterable[KafkaPartition]) -> None: ...


class TriggerLoop:
    """`lineage` reads the registry again. It raises the error that prevents decisions on records now.

    `source` is created with this loop as its listener.
    """

    def __init__(
        self,
        machine: TriggerMachine,
        source: Callable[[TriggerLoop], EventSource],
        lineage: Callable[[], Lineage],
        hands: Hands,
        marks: Marks,
        inbox: queue.SimpleQueue[Happening],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine, self._lineage, self._hands, self._marks, self._clock = machine, lineage, hands, marks, clock
        self._inbox = inbox
        self._placed: list[Assigned] = []
        self._unjudged: list[Record] = []
        self._strays: list[OutOfRange | Reached] = []
        """Events that follow the undecided records."""
        self._todo: list[Seek | WantRecords] = []
        """Instructions for the source, kept until it has performed them."""
        self._again = Backoff()
        self.error = ""
        """Why no records can be read or decided now; empty: no problem."""
        self.known_lag: int | None = None
        """Records without a run, as of the last second; None: unknown."""
        self.trouble = ""
        """Why no records can arrive, as of the last second; empty: no problem is known."""
        self._measured = 0.0
        self._source = source(self)

    def tell(self, happening: Happening) -> None:
        """For any thread: add an answer or an event."""
        self._inbox.put(happening)

    # -- one turn

    def step(self, paused: bool = False) -> None:
        """One turn. Returns within a few seconds, even without answers. `paused`: start no runs. Raises
        ConsumerBroken."""
        try:
            self._turn(paused)
            if not self._unjudged:
                self.error = ""
        except ConsumerBroken:
            raise
        except TreadleError as error:
            self.error = str(error)
            self._again.failed(self._clock())

    def _turn(self, paused: bool) -> None:
        self._hear()
        self._hands.breathe()
        self._do(self.machine.tick(self._clock()))
        self._catch_up()
        self._read()
        self._handle(PauseChanged(paused or bool(self._unjudged and self._clock() < self._again.until)))
        if self._unjudged and self._clock() >= self._again.until:
            self._judge()
        if not self._unjudged:
            strays, self._strays = self._strays, []
            for one in strays:
                self._handle(one)
        self._measure()

    def _read(self) -> None:
        busy = self.machine.under_way or self._unjudged
        room = max(1, MOST - len(self._unjudged))  # never 0: a consumer that does not poll is expelled from its group
        for one in self._source.poll(room, BUSY if busy else IDLE):
            if isinstance(one, Record):
                self._unjudged.append(one)
            else:
                self._strays.append(one)
        # A handover during the poll processes answers. If one requires a seek, the partition's records of this poll are
        # outdated.
        self._drop([one.partition for one in self._todo if isinstance(one, Seek)])
        self._settle_places()

    def _judge(self) -> None:
        """Read the registry after the records have arrived, so that it contains every version that could decide on
        them."""
        lineage = self._lineage()
        judged: dict[KafkaPartition, list[Judged]] = {}
        done, until = 0, self._clock() + JUDGING
        try:
            for record in self._unjudged:
                judged.setdefault(partition_of(record), []).append(lineage.judge(record))
                done += 1
                if self._clock() >= until:
                    break
            self._again.worked()
        finally:
            self._unjudged = self._unjudged[done:]
            for partition, some in judged.items():
                self._handle(Arrived(partition, tuple(some)))

    def _hear(self) -> None:
        while True:
            try:
                self._handle(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _handle(self, happening: Happening) -> None:
        self._do(self.machine.handle(happening, self._clock()))

    # -- instructions of the machine

    def _do(self, instructions: Iterable[Instruction]) -> None:
        commits: dict[KafkaPartition, int] = {}
        for one in instructions:
            match one:
                case Start():
                    self._hands.start(one)
                case Bury():
                    self._hands.bury(one)
                case WatchRun(run):
                    self._hands.watch(run)
                case Commit(partition, offset):
                    commits[partition] = offset
                case Seek(partition):
                    self._drop((partition,))
                    self._todo.append(one)
                case WantRecords():
                    self._todo.append(one)
                case Note(text):
                    _log.warning("%s", text)
        if commits:
            self._commit(commits)

    def _catch_up(self) -> None:
        """Perform the instructions for the source before it is polled again."""
        while self._todo:
            match self._todo[0]:
                case Seek(partition, offset):
                    self._source.seek(partition, offset)
                case WantRecords(partition, wanted):
                    self._source.reading(partition, wanted)
            del self._todo[0]

    def _commit(self, commits: dict[KafkaPartition, int]) -> None:
        try:
            self._source.commit(commits)
            for partition, offset in commits.items():
                self._marks.save(partition, offset)
        except TreadleError as error:
            _log.info("%s", error)
            for partition in commits:
                self.tell(CommitFailed(partition))

    # -- calls of the source, from within poll

    def placed(self, partition: KafkaPartition, committed: int | None) -> int:
        """Start at the group's offset, else at our own mark, else where the trigger began."""
        offset = committed if committed is not None else self._marks.load(partition)
        if offset is None:
            offset = self._lineage().begin(partition)
        self._placed.append(Assigned(partition, offset))
        return offset

    def _settle_places(self) -> None:
        placed, self._placed = self._placed, []
        for one in placed:
            self._handle(one)

    def revoked(self, partitions: Sequence[KafkaPartition]) -> None:
        """Wait for starts in progress, as long as the machine requires, and commit."""
        self._settle_places()
        self._handle(Revoked(tuple(partitions)))
        while set(partitions) & set(self.machine.partitions):
            try:
                self._handle(self._inbox.get(timeout=BUSY))
            except queue.Empty:
                self._do(self.machine.tick(self._clock()))
        self._forget(partitions)
        try:
            self._marks.leave(partitions)
        except TreadleError as error:
            _log.info("%s", error)

    def lost(self, partitions: Sequence[KafkaPartition]) -> None:
        self._settle_places()
        self._handle(PartitionsLost(tuple(partitions)))
        self._forget(partitions)

    def _forget(self, partitions: Sequence[KafkaPartition]) -> None:
        """Drop everything about partitions that were lost. It must not apply if they are assigned again."""
        self._drop(partitions)
        self._todo = [one for one in self._todo if one.partition not in partitions]

    def _drop(self, partitions: Sequence[KafkaPartition]) -> None:
        """Drop undecided records and events of the partitions."""
        self._unjudged = [one for one in self._unjudged if partition_of(one) not in partitions]
        self._strays = [one for one in self._strays if one.partition not in partitions]

    # -- the end

    def _measure(self) -> None:
        if self._clock() >= self._measured + 1.0:
            self._measured = self._clock()
            there, trouble = self._source.lag(), self._source.trouble
            self.known_lag = None if there is None else there + len(self._unjudged) + self.machine.held
            self.trouble = str(trouble or "")

    def close(self) -> None:
        """Hand over all partitions and leave the group."""
        self._source.close()


def partition_of(record: Record) -> KafkaPartition:
    return KafkaPartition(record.topic, record.topic_id, record.partition)
