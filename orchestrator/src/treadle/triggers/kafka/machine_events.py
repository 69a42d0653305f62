"""What a machine hears, and what it asks for. Plain data: a log of happenings replays a trigger's decisions."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from treadle.primitives.events import Record

from .batch import Batch, Match


class Partition(Struct, frozen=True):
    """A partition of one life of a topic: a topic made again has another UUID, and is another partition."""

    topic: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Judged(Struct, frozen=True):
    """A record, and what the version that decides on it made of it: neither matches nor a reason: it is passed over."""

    record: Record
    version: int
    matches: tuple[Match, ...] = ()
    """Several only where a record tells of several objects."""
    reason: str = ""
    """Set: it is a dead letter, whatever else it is."""

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.record.value or b"")


# -- what a machine hears ----------------------------------------------------------------------------------------


class Assigned(Struct, frozen=True):
    """The partition is ours, from an offset on below which everything is done."""

    partition: Partition
    position: int


class Revoked(Struct, frozen=True):
    """The group wants the partitions back, and waits for us."""

    partitions: tuple[Partition, ...]


class Lost(Struct, frozen=True):
    """The partitions are somebody else's already, or their topic is gone."""

    partitions: tuple[Partition, ...]


class Arrived(Struct, frozen=True):
    """Records of one partition, in order, that follow what arrived last; gaps are where nothing is."""

    partition: Partition
    records: tuple[Judged, ...]


class Done(Struct, frozen=True):
    """The run exists, or the dead letter is in its topic, durably. `memo` is that of the start that counts, which may
    be another owner's."""

    ticket: int
    memo: dict[str, Any] = {}
    new: bool = True
    """False: an earlier start of the run counts."""


class Failed(Struct, frozen=True):
    """It could not be done now; whether the run exists is unknown."""

    ticket: int
    reason: str = ""


class Refused(Struct, frozen=True):
    """The run's inputs will never do."""

    ticket: int
    reason: str


Answer: TypeAlias = Done | Failed | Refused


class RunEnded(Struct, frozen=True):
    """A run that was watched is over, however it ended."""

    run: str


class Counted(Struct, frozen=True):
    """Runs of the trigger that are open, as far as is known: the count may lag."""

    active: int


class CommitFailed(Struct, frozen=True):
    """The offset was not taken."""

    partition: Partition


class OutOfRange(Struct, frozen=True):
    """There is nothing at the partition's position: its records are `low` to `high` - 1."""

    partition: Partition
    low: int
    high: int


class Reached(Struct, frozen=True):
    """Reading stands at the partition's end: between the last record and this offset there is none."""

    partition: Partition
    offset: int


class Rest(Struct, frozen=True):
    """Start nothing and read nothing, or go on: somebody paused the trigger, or nobody can judge records now."""

    paused: bool


class Limit(Struct, frozen=True):
    """`maxActive` of the newest version."""

    max_active: int | None


Happening: TypeAlias = (
    Assigned
    | Revoked
    | Lost
    | Arrived
    | Answer
    | RunEnded
    | Counted
    | CommitFailed
    | OutOfRange
    | Reached
    | Rest
    | Limit
)

# -- what it asks for --------------------------------------------------------------------------------------------


class Start(Struct, frozen=True):
    """Start the batch's run; answer Done, Failed or Refused with the ticket."""

    ticket: int
    batch: Batch


class Bury(Struct, frozen=True):
    """Write a dead letter; answer Done or Failed with the ticket."""

    ticket: int
    record: Record
    version: int
    reason: str


class Watch(Struct, frozen=True):
    """Tell when the run is over: RunEnded."""

    run: str


class Commit(Struct, frozen=True):
    """Everything below the offset is done."""

    partition: Partition
    offset: int


class Seek(Struct, frozen=True):
    """Read on from the offset; nothing that was read before may arrive any more."""

    partition: Partition
    offset: int


class Reading(Struct, frozen=True):
    """Whether records of the partition are wanted now."""

    partition: Partition
    wanted: bool


class Note(Struct, frozen=True):
    """Something a person should know."""

    text: str


Instruction: TypeAlias = Start | Bury | Watch | Commit | Seek | Reading | Note
