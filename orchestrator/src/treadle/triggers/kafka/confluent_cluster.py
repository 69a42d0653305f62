"""A member of a consumer group, implemented with confluent's synchronous Consumer.

Three things are not left to the library:

- The start position. Partitions are assigned in a paused state, and started once their topic's UUID and the committed
  offset are known (`auto.offset.reset=error`: no offset is ever guessed).
- The life of a topic that a record belongs to. The UUID is requested after each batch. A topic that was created again
  counts as another one and is read from its first record on.
- The life of a topic that a commit belongs to. Its metadata holds the UUID, so that an offset of a deleted topic is not
  used for its successor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from treadle.executors.runtime.event_source import record_of
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.events import Record

from .cluster_interface import BrokerUnreachable, ConsumerBroken, ConsumerFenced, Listener
from .connectivity import Connectivity
from .health_check import HealthCheck
from .machine_events import KafkaPartition, OutOfRange, Reached
from .topics import ANSWER, Topics

_log = logging.getLogger("treadle.triggers")
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._INVALID_ARG,  # an invalid setting
}
_OCCUPIED = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
}
_FENCED = {KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED}
_END = KafkaError._PARTITION_EOF
_PLACED = {_END, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Reports about one partition at its position."""
GROUP = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,  # advances the position past transaction markers, which are not records
}
"""Settings that a trigger's guarantees depend on."""
TUNING = {
    "queued.max.messages.kbytes": 16_384,  # prefetched records; 64 MiB by default
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 15_000,
    "heartbeat.interval.ms": 1_000,  # how soon a member learns that another one left
    "topic.metadata.refresh.interval.ms": 10_000,  # how soon a recreated topic is found; 5 min by default
}
"""Our defaults, which a connection may override."""
LEAVE = 3.0
"""Maximum seconds for leaving the group."""


class ClusterSource:
    """`instance` is the name of this member. A member that returns under the same name gets its partitions back without
    a rebalance."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        group: str,
        instance: str,
        topics: Sequence[str],
        listener: Listener,
        connectivity: Connectivity | None = None,
    ) -> None:
        self._listener = listener
        with translated():
            self._topics = Topics(settings, connectivity)
            told = self._topics.connectivity
            about = {"group.id": group, "group.instance.id": instance, "error_cb": told.error}
            self._consumer = Consumer({**TUNING, **settings, **GROUP, **about}, logger=told)
        self._watch = HealthCheck(self._topics, topics, time.monotonic)
        self._unplaced: set[tuple[str, int]] = set()
        self._placed: dict[tuple[str, int], KafkaPartition] = {}
        self._next: dict[tuple[str, int], int] = {}
        """Offset of the next record. The library knows it only for partitions that have returned a record."""
        self._sought: dict[tuple[str, int], int] = {}
        """Offset of the last seek. On a busy machine the library may still return records of the position before."""
        self._unverified: list[Message] = []
        """Records read before their topic's UUID was checked again."""
        self._bounds_seen: dict[tuple[str, int], tuple[int, int]] = {}
        """First offset and end of each partition at the last check; empty: unknown."""
        self._still: set[KafkaPartition] = set()
        """Partitions whose reading is disabled."""
        self._error: KafkaError | None = None
        self._refused: TreadleError | None = None
        """The error with which the group rejects this member; None: accepted."""
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    # -- reading

    def poll(self, most: int, seconds: float) -> list[Record | OutOfRange | Reached]:
        if self._watch.tick():
            self._measure()
        with translated():
            self._sort(self._consumer.consume(most, timeout=seconds))
            if self._unplaced:
                self._place()
            if self._error is not None:
                error, self._error = self._error, None
                raise KafkaException(error)
            return self._verified() if self._unverified else []

    def _sort(self, messages: Iterable[Message]) -> None:
        """Keep messages of known partitions. Errors of other messages are raised later, when everything else is
        safe."""
        for message in messages:
            error = message.error()
            if error is None or error.code() in _PLACED:
                place = _place_of(message)
                if place in self._placed and (error or (message.offset() or 0) >= self._sought[place]):
                    self._unverified.append(message)
                    if error is None or error.code() == _END:
                        self._next[place] = (message.offset() or 0) + (error is None)
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._error = error
                if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    self._refused = _translated(error)

    def _verified(self) -> list[Record | OutOfRange | Reached]:
        """The records of the known life of their topic. Records of another life are read again as such.

        If the cluster does not report the UUID, the records stay for the next try.
        """
        topics = {one.topic() or "" for one in self._unverified}
        ids = self._topics.ids(topics)
        for topic in topics:
            if any(ids.get(topic) != one.topic_id for place, one in self._placed.items() if place[0] == topic):
                self._forget(topic)
        found = [self._found(message) for message in self._unverified]
        self._unverified = []
        return found

    def _found(self, message: Message) -> Record | OutOfRange | Reached:
        partition, error = self._placed[_place_of(message)], message.error()
        if error is None:
            return record_of(message, partition.topic_id)
        if error.code() == _END:
            return Reached(partition, message.offset() or 0)
        return OutOfRange(partition, *self._bounds(partition))

    def _bounds(self, partition: KafkaPartition) -> tuple[int, int]:
        bounds = self._consumer.get_watermark_offsets(_at(partition), timeout=ANSWER)
        if bounds is None:
            raise BrokerUnreachable(f"{partition}: the cluster does not say which records there are", "Wait.")
        return bounds

    def _forget(self, topic: str) -> None:
        """The topic was deleted or replaced: its partitions must be placed again."""
        gone = [place for place in self._placed if place[0] == topic]
        self._listener.lost(self._drop(gone))
        self._unplaced.update(gone)
        self._consumer.pause([TopicPartition(*place) for place in gone])

    # -- placing partitions

    def _place(self) -> None:
        """Start partitions whose topic exists."""
        ids = self._topics.ids({topic for topic, _ in self._unplaced})
        ready = [place for place in sorted(self._unplaced) if place[0] in ids]
        if not ready:
            return
        committed = self._consumer.committed([TopicPartition(*place) for place in ready], timeout=ANSWER)
        for known in _checked(committed):
            partition = KafkaPartition(known.topic, ids[known.topic], known.partition)
            offset = self._listener.placed(partition, _usable(known, partition))
            self._go(_at(partition, offset))
            self._consumer.resume([_at(partition)])
            self._still.discard(partition)
            self._unplaced.discard((known.topic, known.partition))
            self._placed[known.topic, known.partition] = partition

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(one.topic, one.partition, OFFSET_BEGINNING) for one in partitions])
        consumer.pause(partitions)
        self._refused = None
        self._unplaced.update((one.topic, one.partition) for one in partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._listener.revoked(self._take(partitions))
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._listener.lost(self._take(partitions))
        consumer.incremental_unassign(partitions)

    def _take(self, partitions: list[TopicPartition]) -> list[KafkaPartition]:
        places = [(one.topic, one.partition) for one in partitions]
        self._unplaced.difference_update(places)
        return self._drop(places)

    def _drop(self, places: Collection[tuple[str, int]]) -> list[KafkaPartition]:
        self._unverified = [one for one in self._unverified if _place_of(one) not in places]
        return [self._placed.pop(place) for place in places if place in self._placed]

    # -- other requests

    def commit(self, offsets: Mapping[KafkaPartition, int]) -> None:
        with translated():
            _checked(self._consumer.commit(offsets=_marked(offsets), asynchronous=False))
        self._refused = None

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        with translated():
            place = (partition.topic, partition.number)
            self._unverified = [one for one in self._unverified if _place_of(one) != place]
            self._go(_at(partition, offset))
            if partition in self._still:
                self._consumer.pause([_at(partition)])

    def _go(self, to: TopicPartition) -> None:
        """The library stops permanently where an offset was out of range, so such a partition is assigned again."""
        self._next[to.topic, to.partition] = self._sought[to.topic, to.partition] = to.offset
        try:
            self._consumer.seek(to)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._consumer.incremental_unassign([to])
            self._consumer.incremental_assign([to])

    def reading(self, partition: KafkaPartition, wanted: bool) -> None:
        with translated():
            (self._still.discard if wanted else self._still.add)(partition)
            (self._consumer.resume if wanted else self._consumer.pause)([_at(partition)])

    def lag(self) -> int | None:
        """The lag up to the ends at the last check; None if unknown."""
        if self._watch.trouble is not None or not self._placed.keys() <= self._bounds_seen.keys():
            return None
        bounds = [(self._next[place], *self._bounds_seen[place]) for place in self._placed]
        return sum(max(0, high - max(position, low)) for position, low, high in bounds)

    def _measure(self) -> None:
        """Request the current first offsets and ends. Disabled partitions are not fetched, so they do not report their
        ends."""
        self._bounds_seen = {}
        if self._watch.trouble is None:
            with suppress(KafkaException, BrokerUnreachable):
                self._bounds_seen = {place: self._bounds(one) for place, one in self._placed.items()}

    @property
    def trouble(self) -> TreadleError | None:
        """See EventSource."""
        return self._watch.trouble or self._refused

    def close(self) -> None:
        """Unsubscribe first: on closing, the library does not leave the group for a member with an instance name."""
        with suppress(KafkaException):  # a fenced member has no group to leave
            self._consumer.unsubscribe()
            end = time.monotonic() + LEAVE
            while self._consumer.memberid() and time.monotonic() < end:
                self._consumer.consume(1, timeout=0.05)
        with translated():
            self._consumer.close()


class Occupied(UsageError):
    """The group has members; retry when they have left."""


def commit_as_nobody(settings: Mapping[str, Any], group: str, offsets: Mapping[KafkaPartition, int]) -> None:
    """Set the offsets of a group without members. Raises KafkaException, and Occupied if it has members."""
    consumer = Consumer({**settings, **GROUP, "group.id": group}, logger=_log)
    wanted = _marked(offsets)
    try:
        consumer.assign(wanted)
        _checked(consumer.commit(offsets=wanted, asynchronous=False))
    except KafkaException as error:
        if error.args[0].code() in _OCCUPIED:
            text = "a service runs the trigger now, or did until a moment ago"
            raise Occupied(text, "Try again in a quarter of a minute, or end the service.") from error
        raise
    finally:
        consumer.close()


@contextmanager
def translated() -> Iterator[None]:
    """Convert librdkafka's errors."""
    try:
        yield
    except KafkaException as error:
        raise _translated(error.args[0]) from error


def _translated(error: KafkaError) -> BrokerUnreachable | ConsumerBroken | UsageError:
    if error.code() in _FENCED or (error.code() == KafkaError._FATAL and "fenced" in error.str()):
        return ConsumerFenced(
            "another process has this one's place in the consumer group", "Look for a second service."
        )
    if error.fatal() or error.code() == KafkaError._FATAL:
        return ConsumerBroken(f"Kafka's client gives up: {error.str()}", "It is made anew.")
    if error.code() in _REFUSED:
        return UsageError(f"Kafka refuses: {error.str()}", "Give the user of the connection the rights, or mend it.")
    hint = "See that it runs where the profile says. `treadle triggers` tries again by itself."
    return BrokerUnreachable(f"Kafka does not do it: {error.str()}", hint)


def _marked(offsets: Mapping[KafkaPartition, int]) -> list[TopicPartition]:
    """Offsets with the UUID of their topic."""
    return [TopicPartition(one.topic, one.number, at, metadata=one.topic_id) for one, at in offsets.items()]


def _checked(answers: Iterable[TopicPartition] | None) -> list[TopicPartition]:
    """Raise the error of a single partition: the library raises only errors of all partitions, and returns others."""
    found = list(answers or ())
    if error := next((one.error for one in found if one.error is not None), None):
        raise KafkaException(error)
    return found


def _usable(known: TopicPartition, partition: KafkaPartition) -> int | None:
    """The group's offset for this life of the topic. Kafka's own tools write no UUID; their offsets count too."""
    if known.offset < 0 or known.metadata not in (None, "", partition.topic_id):
        return None
    if not known.metadata:
        _log.warning("%s: reading on at %d, which another program committed", partition, known.offset)
    return known.offset


def _place_of(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition() or 0


def _at(partition: KafkaPartition, offset: int | None = None) -> TopicPartition:
    if offset is None:
        return TopicPartition(partition.topic, partition.number)
    return TopicPartition(partition.topic, partition.number, offset)
