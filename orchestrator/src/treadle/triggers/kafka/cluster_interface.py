"""What a trigger asks of a Kafka cluster. One implementation is confluent's (`cluster`); tests have one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Record

from .machine_events import OutOfRange, Partition, Reached


class BrokerUnreachable(Unreachable):
    """The Kafka cluster does not answer, or refuses this client now; trying again may help."""


class Broken(TreadleError):
    """This member of the group can do nothing any more; another one is to be made."""


class Fenced(Broken):
    """Another process uses the group under this instance's name: the next member takes another."""


class Listener(Protocol):
    """Hears about partitions, from within `poll`."""

    def placed(self, partition: Partition, committed: int | None) -> int:
        """The partition is ours. `committed` is the group's offset for this life of the topic, if it has one; to be
        answered with the offset to read from."""
        ...

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """They go to somebody else when this returns."""
        ...

    def lost(self, partitions: Sequence[Partition]) -> None:
        """They are gone: to somebody else, or with their topic."""
        ...


class EventSource(Protocol):
    """A member of a consumer group. Used by one thread; nothing may wait longer than a few seconds."""

    def poll(self, most: int, seconds: float) -> list[Record | OutOfRange | Reached]:
        """Up to `most` committed records, in order within a partition; waits up to `seconds` for the first ones.

        A record's `topic_id` is the one the topic had before **and** after the record was read. Raises
        BrokerUnreachable, Broken, and UsageError for what a person must mend (a topic that may not be read).
        """
        ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Remember offsets below which all is done, with the topic's UUID. Raises BrokerUnreachable."""
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from there: nothing that was read before arrives any more."""
        ...

    def reading(self, partition: Partition, wanted: bool) -> None:
        """Whether records of the partition are wanted; what is not wanted stays with the broker."""
        ...

    def lag(self) -> int | None:
        """Offsets between what `poll` has given and the ends, as of a few seconds ago; None: unknown."""
        ...

    @property
    def trouble(self) -> TreadleError | None:
        """Why no records can come now, though `poll` raises nothing; None: nothing is known to be wrong."""
        ...

    def close(self) -> None:
        """Leave, so that another member is given the partitions at once; they are revoked before, as by the group."""
        ...
