"""The requests of a trigger to a Kafka cluster. `confluent_cluster` implements them; tests use a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Record

from .machine_events import KafkaPartition, OutOfRange, Reached


class BrokerUnreachable(Unreachable):
    """The Kafka cluster does not answer, or rejects this client now; a retry may help."""


class ConsumerBroken(TreadleError):
    """This member of the group is unusable; create another one."""


class ConsumerFenced(ConsumerBroken):
    """Another process uses the group under this instance's name: the next member uses another name."""


class Listener(Protocol):
    """Receives changes of partitions, from within `poll`."""

    def placed(self, partition: KafkaPartition, committed: int | None) -> int:
        """The partition is assigned to this member. Returns the offset to read from. `committed` is the group's offset
        for this life of the topic, or None."""
        ...

    def revoked(self, partitions: Sequence[KafkaPartition]) -> None:
        """When this returns, the partitions are assigned to other members."""
        ...

    def lost(self, partitions: Sequence[KafkaPartition]) -> None:
        """The partitions are lost: to another member, or with their topic."""
        ...


class EventSource(Protocol):
    """A member of a consumer group. Used by one thread; no method may block for more than a few seconds."""

    def poll(self, most: int, seconds: float) -> list[Record | OutOfRange | Reached]:
        """Up to `most` committed records, in order within a partition. Waits up to `seconds` for the first ones.

        A record's `topic_id` is the id that the topic had before **and** after the record was read. Raises
        BrokerUnreachable, ConsumerBroken, and UsageError for problems that the user must fix (a topic that may not be
        read).
        """
        ...

    def commit(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Commit offsets below which all records are done, with the topic's UUID. Raises BrokerUnreachable."""
        ...

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        """Continue reading at `offset`. Records read before do not arrive any more."""
        ...

    def reading(self, partition: KafkaPartition, wanted: bool) -> None:
        """Enable or disable reading of the partition; unread records stay in the broker."""
        ...

    def lag(self) -> int | None:
        """Offsets between the last record from `poll` and the ends, as of a few seconds ago; None: unknown."""
        ...

    @property
    def trouble(self) -> TreadleError | None:
        """Why no records can arrive now, although `poll` raises no error; None: no problem is known."""
        ...

    def close(self) -> None:
        """Leave the group, so that other members receive the partitions at once. They are revoked first, as by the
        group."""
        ...
