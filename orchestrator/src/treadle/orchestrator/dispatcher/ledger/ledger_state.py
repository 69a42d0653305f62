"""The state of a segment that follows from its ledger records. Pure.

The account of a segment in a ledger: its records so far, and the writer of further ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from treadle.executors.program import Outcome
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import FailureClass

from .group_commit import LedgerWriter
from .ledger import (
    CANCELLED,
    Closed,
    Committed,
    Copied,
    Epoch,
    Expected,
    Failed,
    GangCheckpoint,
    Iterated,
    Lost,
    Record,
    Started,
)


@dataclass
class SegmentHistory:
    """The state of one segment after its records, as a dispatcher takes it over."""

    expected: int | None = None
    opened: float | None = None
    """Seconds since the epoch. A stage's deadline counts from here, afresh in each resumption. None: it counts from
    now."""
    committed: dict[int, Outcome] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """partition -> number of its newest attempt."""
    spent: dict[int, int] = field(default_factory=dict)
    """partition -> attempts that count against its budget in this resumption."""
    losses: dict[int, int] = field(default_factory=dict)
    """partition -> attempts whose worker was lost."""
    crashes: dict[int, int] = field(default_factory=dict)
    """partition -> attempts that a dead driver left without an outcome."""
    cut_off: set[int] = field(default_factory=set)
    """Partitions whose newest attempt a dead driver left without an outcome."""
    failed: dict[int, str] = field(default_factory=dict)
    """partition -> its failure, if it is final in this resumption. One that was cancelled stays so."""
    closed: bool = False
    frozen: set[int] = field(default_factory=set)
    """The committed partitions when the first block was lost. A quorum is met once, by these partitions for ever."""
    checkpoints: dict[int, tuple[BlockRef, ...]] = field(default_factory=dict)
    """Number -> the states of a gang's members: the last two checkpoints, so that one may be damaged."""
    resumption: int = 0
    _open: set[int] = field(default_factory=set)

    def apply(self, record: Record, segment: str) -> None:
        match record:
            case Epoch():
                self._take_over(record)
            case Expected(name, partitions, time) if name == segment:
                self.expected = partitions
                self.opened = self.opened or time
            case Started(name, attempts) if name == segment:
                self.starts.update(attempts)
                self._open.update(attempts)
                self.cut_off.difference_update(attempts)
            case Committed(name, outcome) if name == segment:
                self.committed[outcome.partition] = outcome
                self.failed.pop(outcome.partition, None)
                self.checkpoints = {}
                self._ended(outcome.partition, outcome.attempt)
            case Copied(name) if name == segment:
                for partition, digests in record.by_partition():
                    if partition in self.committed:
                        self.committed[partition] = copied(self.committed[partition], digests)
            case Failed(name) if name == segment:
                if record.final:
                    self.failed[record.partition] = record.failure
                if record.failure != FailureClass.THROTTLED:
                    counts = self.spent if record.spent else self.losses
                    counts[record.partition] = counts.get(record.partition, 0) + 1
                self._ended(record.partition, record.attempt)
            case Lost(name, partitions) if name == segment:
                self.closed, self.opened, self.checkpoints = False, None, {}
                self.frozen = set() if record.anew else self.frozen or set(self.committed)
                for partition in partitions:
                    self.committed.pop(partition, None)
            case GangCheckpoint(name, number, states) if name == segment:
                self._checkpoint(number, states)
            case Closed(name) if name == segment:
                self.closed = True

    @property
    def running(self) -> int:
        """Partitions whose attempt has begun and has no outcome. Their driver may be dead."""
        return len(self._open)

    def _checkpoint(self, number: int, states: tuple[BlockRef, ...]) -> None:
        """A gang that has made progress has all its losses before it: only those without progress are poison."""
        if not states:
            self.checkpoints = {one: kept for one, kept in self.checkpoints.items() if one != number}
            return
        before = max(self.checkpoints, default=0)
        self.checkpoints = {one: kept for one, kept in self.checkpoints.items() if one == before} | {number: states}
        self.losses.clear()
        self.crashes.clear()

    def _take_over(self, epoch: Epoch) -> None:
        for partition in self._open:
            self.crashes[partition] = self.crashes.get(partition, 0) + 1
        self.cut_off |= self._open
        self._open.clear()
        if epoch.resumption > self.resumption:
            self.resumption = epoch.resumption
            self.spent.clear()
            self.losses.clear()
            self.opened = epoch.time if self.opened is not None else None
            self.crashes.clear()
            self.failed = {partition: name for partition, name in self.failed.items() if name == CANCELLED}

    def _ended(self, partition: int, attempt: int) -> None:
        self.starts[partition] = max(attempt, self.starts.get(partition, 0))
        self._open.discard(partition)
        self.cut_off.discard(partition)


def copied(outcome: Outcome, digests: Sequence[bytes]) -> Outcome:
    """The outcome with the store added to its block's locations. `digests`: as of `BlockRef.in_store`."""
    if outcome.block is None or "store" in outcome.block.locations:
        return outcome
    return msgspec.structs.replace(outcome, block=outcome.block.in_store(digests))


def lost_partitions(outcomes: Iterable[Outcome], blocks: Iterable[str]) -> tuple[int, ...]:
    """The partitions whose committed block is among `blocks`. A recomputed partition has another block."""
    wanted = set(blocks)
    return tuple(
        one.partition for one in outcomes if any(block and block.name in wanted for block in (one.block, one.effects))
    )


def replay(records: Iterable[Record], segment: str) -> SegmentHistory:
    """The history of one segment. The chain may hold the records of several segments."""
    history = SegmentHistory()
    for record in records:
        history.apply(record, segment)
    return history


class ChainHistory(dict[str, SegmentHistory]):
    """The history of each segment in the chain. An epoch concerns every segment that the chain had until then."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        super().__init__()
        self._resumption = 0
        self.add(records)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, Epoch):
                self._resumption = max(self._resumption, record.resumption)
                for name, history in self.items():
                    history.apply(record, name)
            elif not isinstance(record, Iterated):
                self[record.segment].apply(record, record.segment)

    def __missing__(self, segment: str) -> SegmentHistory:
        return self.setdefault(segment, SegmentHistory(resumption=self._resumption))


@dataclass
class Account:
    """The account of one segment, or of one of its task groups. A task group has its own ledger."""

    name: str
    """The segment's name within its loops."""
    writer: LedgerWriter
    history: SegmentHistory
    group: int = -1
    """The task group. -1: the whole segment."""
    pace: float = 0.0
    """Seconds that a partition took before. 0: not known."""

    def enter(self, *records: Record) -> None:
        """Add records to one object of the ledger and to the history, so that a loop need not reread the ledger."""
        self.writer.append(*records)
        for record in records:
            self.history.apply(record, self.name)

    def take_back(self, blocks: Iterable[str]) -> tuple[int, ...]:
        """Take back the commits whose blocks are gone. Returns their partitions, without those recomputed since."""
        lost = lost_partitions(self.history.committed.values(), blocks)
        if lost:
            self.enter(Lost(self.name, lost))
        return lost
