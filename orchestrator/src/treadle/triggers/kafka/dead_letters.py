"""Dead letters: records that cannot start a run, kept whole in a topic of their own, with the reason.

They have the headers of Spring Kafka's dead letter topics (numbers are big-endian, as there), and treadle's own:
https://docs.spring.io/spring-kafka/reference/kafka/annotation-error-handling.html#dead-letters

    kafka_dlt-original-topic, -partition, -offset, -timestamp, -consumer-group
    kafka_dlt-exception-message      the reason
    treadle-trigger                  `orders.live`
    treadle-version                  the version that decided
    treadle-reason                   the reason
    treadle-topic-id                 the UUID of the original topic
    treadle-value: omitted           the value was too large for the topic; the letter holds its location
                                     (without the record's own key and headers if those are large too)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from msgspec import Struct
from msgspec.structs import replace

from treadle.executors.runtime.event_source import record_of
from treadle.primitives.events import Record

from .cluster_interface import BrokerUnreachable, ConsumerBroken
from .confluent_cluster import translated
from .connectivity import Connectivity
from .machine_events import Bury, EffectDone, EffectFailed
from .topics import Topics

_log = logging.getLogger("treadle.triggers")
_OURS = ("kafka_dlt-", "treadle-")
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._BAD_MSG}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_REASON = 2_000
"""Maximum characters of the reason."""
_OWN = 64 * 2**10
"""Maximum bytes of key and headers that a letter keeps of a record whose value is too large."""
_QUIET = 10.0
"""Seconds to wait for an existing letter while reading."""
Headers: TypeAlias = list[tuple[str, str | bytes | None]]


def headers(letter: Bury, trigger: str, group: str, *, omitted: bool = False) -> Headers:
    """Headers of a dead letter: the record's own, its origin and the reason. `trigger`: `<workflow>.<trigger>`."""
    record, reason = letter.record, letter.reason[:_REASON].encode(errors="replace")
    kept: Headers = [(name, value) for name, value in record.headers if not name.startswith(_OURS)]
    ours: dict[str, bytes] = {
        "kafka_dlt-original-topic": record.topic.encode(),
        "kafka_dlt-original-partition": record.partition.to_bytes(4, "big"),
        "kafka_dlt-original-offset": record.offset.to_bytes(8, "big"),
        "kafka_dlt-original-timestamp": _milliseconds(record.time),
        "kafka_dlt-original-consumer-group": group.encode(),
        "kafka_dlt-exception-message": reason,
        "treadle-trigger": trigger.encode(),
        "treadle-version": str(letter.version).encode(),
        "treadle-reason": reason,
        "treadle-topic-id": record.topic_id.encode(),
    }
    if omitted:
        ours["treadle-value"] = b"omitted"
    return [*kept, *ours.items()]


def _milliseconds(seconds: float) -> bytes:
    """A Java long for any producer's timestamp; -1 means no time."""
    return min(round(seconds * 1000), 2**63 - 1).to_bytes(8, "big", signed=True)


def shortened(record: Record) -> Record:
    """The record with its location instead of its value."""
    about = {"topic": record.topic, "topicId": record.topic_id, "partition": record.partition, "offset": record.offset}
    place = msgspec.json.encode({**about, "bytes": len(record.value or b"")})
    own = len(record.key or b"") + sum(len(name) + len(value or b"") for name, value in record.headers)
    if own > _OWN:
        record = replace(record, key=None, headers=())
    return replace(record, value=place)


class Graveyard:
    """Writes dead letters of a trigger (`<workflow>.<trigger>`); `answer` is called from within `poll` and `bury`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        trigger: str,
        group: str,
        answer: Callable[[EffectDone | EffectFailed], None],
        connectivity: Connectivity | None = None,
    ) -> None:
        self._topics, self.topic, self._answer = Topics(settings, connectivity), topic, answer
        told = self._topics.connectivity
        about = {"enable.idempotence": True, "delivery.timeout.ms": 30_000, "linger.ms": 5, "error_cb": told.error}
        self._producer = Producer({**settings, **about}, logger=told)
        self._whose = trigger, group
        self._over = False
        """The producer accepts no more letters."""

    def bury(self, letter: Bury) -> None:
        """Write a letter. The answer comes when the topic's replicas have it."""
        self._produce(letter, omitted=False)

    def poll(self) -> None:
        """Process answers. Raises ConsumerBroken."""
        self._producer.poll(0)
        if self._over:
            raise ConsumerBroken(f"Kafka's client gives up writing dead letters to {self.topic}", "It is made anew.")

    def close(self, seconds: float) -> None:
        """Wait for letters that are being written."""
        self._producer.flush(seconds)

    def _produce(self, letter: Bury, omitted: bool) -> None:
        record = letter.record

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._answer(EffectDone(letter.ticket))
            elif error.code() in _TOO_LARGE and not omitted:
                self._produce(replace(letter, record=shortened(record)), omitted=True)
            else:
                self._failed(letter.ticket, error)

        try:
            self._producer.produce(
                self.topic,
                record.value,
                record.key,
                headers=headers(letter, *self._whose, omitted=omitted),
                on_delivery=delivered,
            )
        except BufferError:
            self._answer(EffectFailed(letter.ticket, "more dead letters wait than the producer holds"))
        except KafkaException as error:
            delivered(error.args[0], None)  # type: ignore[arg-type]

    def _failed(self, ticket: int, error: KafkaError) -> None:
        self._over |= error.code() == KafkaError._FATAL
        reason = self._create() if error.code() in _MISSING else ""
        self._answer(EffectFailed(ticket, f"no dead letter can be written to {self.topic}: {reason or error.str()}"))

    def _create(self) -> str:
        """Create the topic if it does not exist. Returns the error, or an empty text."""
        try:
            self._topics.create(self.topic)
        except KafkaException as error:
            return f"the topic cannot be made: {error.args[0].str()}"
        except BrokerUnreachable as error:
            return error.message
        return ""


class KafkaDeadLetter(Struct, frozen=True):
    """A dead letter read from its topic."""

    topic: str
    """The topic of dead letters."""
    partition: int
    offset: int
    record: Record
    """The original record; if `omitted`, its value is its location."""
    trigger: str
    """`<workflow>.<trigger>`; empty: treadle did not write it."""
    version: int
    reason: str
    omitted: bool = False
    topic_id: str = ""
    """The UUID of the topic of dead letters."""

    @property
    def id(self) -> str:
        """For display: `orders.v1.dlt/0/17`."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def read_letters(
    settings: Mapping[str, Any], topic: str, trigger: str | None = None, connectivity: Connectivity | None = None
) -> Iterator[KafkaDeadLetter]:
    """The current content of a topic of dead letters, by partition, oldest first; optionally of one trigger.

    Joins no group and commits nothing. Raises BrokerUnreachable; yields nothing when the topic does not exist.
    """
    with translated():
        topics = Topics(settings, connectivity)
        partitions = topics.partitions([topic]).get(topic, [])
        ends = topics.offsets(partitions, end=True)
        begins = topics.offsets(partitions, end=False)
    for partition in partitions:
        if begins[partition] < ends[partition]:
            for message in _messages(settings, topic, partition.number, ends[partition]):
                letter = replace(letter_of(message), topic_id=partition.topic_id)
                if trigger is None or letter.trigger == trigger:
                    yield letter


def _messages(settings: Mapping[str, Any], topic: str, partition: int, end: int) -> Iterator[Message]:
    about = {"group.id": "treadle.letters", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, **about, "enable.partition.eof": True}, logger=_log)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    try:
        while (message := consumer.poll(_QUIET)) is not None:  # a message without a value is falsy
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            with translated():
                if error is not None:
                    raise KafkaException(error)
            yield message
            if (message.offset() or 0) + 1 >= end:
                return
        raise BrokerUnreachable(f"{topic}/{partition}: nothing comes, and there is more before {end}", "Try again.")
    finally:
        consumer.close()


def letter_of(message: Message) -> KafkaDeadLetter:
    """Parse a message of a topic of dead letters."""
    found = record_of(message, "")
    said = {name: value or b"" for name, value in found.headers}
    original = Record(
        said.get("kafka_dlt-original-topic", b"").decode(errors="replace"),
        said.get("treadle-topic-id", b"").decode(errors="replace"),
        int.from_bytes(said.get("kafka_dlt-original-partition", b"")[:4], "big"),
        int.from_bytes(said.get("kafka_dlt-original-offset", b"")[:8], "big"),
        found.key,
        found.value,
        tuple((name, value) for name, value in found.headers if not name.startswith(_OURS)),
        int.from_bytes(said.get("kafka_dlt-original-timestamp", b"")[:8], "big", signed=True) / 1000,
    )
    version = said.get("treadle-version", b"0")[:9]
    return KafkaDeadLetter(
        found.topic,
        found.partition,
        found.offset,
        original,
        said.get("treadle-trigger", b"").decode(errors="replace"),
        int(version) if version.isdigit() else 0,
        said.get("treadle-reason", b"").decode(errors="replace"),
        said.get("treadle-value") == b"omitted",
    )
