"""The events and instructions of a machine. Plain data: a log of events replays a trigger's decisions."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from treadle.primitives.events import Record

from .batch import KafkaBatch, Match


class KafkaPartition(Struct, frozen=True):
    """A partition of one life of a topic. A topic that was created again has another UUID, so its partitions differ."""

    topic: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Judged(Struct, frozen=True):
    """A record and the decision of its version: matches, a reason, or neither (filtered out)."""

    record: Record
    version: int
    matches: tuple[Match, ...] = ()
    """Several only if the record reports several objects."""
    reason: str = ""
    """Set: the record is a dead letter, even if it has matches."""

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.record.value or b"")


# -- events ----------------------------------------------------------------------------------------------------------


class Assigned(Struct, frozen=True):
    """The partition is assigned to this process. Everything below the position is done."""

    partition: KafkaPartition
    position: int


class Revoked(Struct, frozen=True):
    """The group revokes the partitions, and waits for their release."""

    partitions: tuple[KafkaPartition, ...]


class PartitionsLost(Struct, frozen=True):
    """The partitions are already assigned to another process, or their topic is gone."""

    partitions: tuple[KafkaPartition, ...]


class Arrived(Struct, frozen=True):
    """Records of one partition, in order, after the last arrived ones; gaps hold no records."""

    partition: KafkaPartition
    records: tuple[Judged, ...]


class EffectDone(Struct, frozen=True):
    """The run exists, or the dead letter is in its topic, durably. `memo` belongs to the accepted start, possibly of
    another owner."""

    ticket: int
    memo: dict[str, Any] = {}
    new: bool = True
    """False: an earlier start of the run was accepted."""


class EffectFailed(Struct, frozen=True):
    """It failed; whether the run exists is unknown."""

    ticket: int
    reason: str = ""


class StartRefused(Struct, frozen=True):
    """The run's inputs can never be accepted."""

    ticket: int
    reason: str


Answer: TypeAlias = EffectDone | EffectFailed | StartRefused


class RunEnded(Struct, frozen=True):
    """A watched run has ended, successfully or not."""

    run: str


class RunsCounted(Struct, frozen=True):
    """The number of the trigger's open runs; it may lag."""

    active: int


class CommitFailed(Struct, frozen=True):
    """The offset was not committed."""

    partition: KafkaPartition


class OutOfRange(Struct, frozen=True):
    """The partition has no record at its position: its records are `low` to `high` - 1."""

    partition: KafkaPartition
    low: int
    high: int


class Reached(Struct, frozen=True):
    """Reading is at the partition's end: no records exist between the last one and this offset."""

    partition: KafkaPartition
    offset: int


class PauseChanged(Struct, frozen=True):
    """Stop starting and reading, or continue: the trigger is paused, or records cannot be decided now."""

    paused: bool


class MaxActiveChanged(Struct, frozen=True):
    """`maxActive` of the newest version."""

    max_active: int | None


Happening: TypeAlias = (
    Assigned
    | Revoked
    | PartitionsLost
    | Arrived
    | Answer
    | RunEnded
    | RunsCounted
    | CommitFailed
    | OutOfRange
    | Reached
    | PauseChanged
    | MaxActiveChanged
)

# -- instructions ----------------------------------------------------------------------------------------------------


class Start(Struct, frozen=True):
    """Start the batch's run; answer EffectDone, EffectFailed or StartRefused with the ticket."""

    ticket: int
    batch: KafkaBatch


class Bury(Struct, frozen=True):
    """Write a dead letter; answer EffectDone or EffectFailed with the ticket."""

    ticket: int
    record: Record
    version: int
    reason: str


class WatchRun(Struct, frozen=True):
    """Report the end of the run: RunEnded."""

    run: str


class Commit(Struct, frozen=True):
    """Everything below the offset is done."""

    partition: KafkaPartition
    offset: int


class Seek(Struct, frozen=True):
    """Continue reading at the offset. Records read before must not arrive any more."""

    partition: KafkaPartition
    offset: int


class WantRecords(Struct, frozen=True):
    """Enable or disable reading of the partition."""

    partition: KafkaPartition
    wanted: bool


class Note(Struct, frozen=True):
    """A message for the log."""

    text: str


Instruction: TypeAlias = Start | Bury | WatchRun | Commit | Seek | WantRecords | Note
