"""Reads the events of a run again: from the Kafka partition where its trigger read them, or from a stored copy.

A reader belongs to no consumer group and commits nothing (`assign` and a first offset). It returns every requested
record, or fails: the topic must still have the same UUID, and each offset must exist.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import known
from treadle.primitives.errors import DataError, MissingError, StoreError, TreadleError, UsageError
from treadle.primitives.events.decode import decode
from treadle.primitives.events.offset_ranges import stretches
from treadle.primitives.events.records import Record, as_item
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.atomic_files import Buffer
from treadle.primitives.stores.store import Store

from ..program import EventSplit, connection_secret

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_SILENCE = 30.0
"""Seconds without an answer after which the broker counts as unavailable."""
_BATCH = 500
_QUIET: dict[str, Any] = {"log_level": 3}
"""A task's log belongs to the user; errors of the broker are raised instead."""


class EventReader:
    """Reads events for the tasks of one run."""

    def __init__(self, store: Store, run: str, key: bytes, secrets: Mapping[str, str]) -> None:
        """`key` is the run's; `secrets` hold the settings of the connections that its tasks use."""
        self._store, self._run, self._key, self._secrets = store, run, key, secrets

    def read(self, split: EventSplit) -> Iterator[list[Any]]:
        """The events, or their data, in order, in small lists.

        Raises DataError for events that are missing or cannot be decoded, StoreError when the broker or the store does
        not answer, UsageError when the connection is not known here.
        """
        records = self._copied(split) if split.copied else self._consumed(split)
        while some := list(islice(records, _BATCH)):
            yield [as_item(decode(record, split.format, split.connection), split.envelope) for record in some]

    def _copied(self, split: EventSplit) -> Iterator[Record]:
        name = f"runs/{run_folder(self._run)}/{split.copied}"
        try:
            known = unpack(sealing.SealedStore(self._store, self._key).get(name))
        except MissingError as error:
            raise _gone(split, "the copy of them in the store was removed") from error
        for offset in _wanted(split):
            yield known[offset]

    def _consumed(self, split: EventSplit) -> Iterator[Record]:
        settings = _QUIET | json.loads(self._secrets[connection_secret(split.connection)])
        _check_topic(settings, split)
        with closing(_consumer(settings, split)) as consumer:
            messages = _messages(consumer, split)
            for offset in _wanted(split):
                message = next(one for one in messages if (one.offset() or 0) >= offset)
                if message.offset() != offset:
                    raise _gone(split, f"offset {offset} is not there any more")
                yield record_of(message, split.topic_id)


def pack(records: Iterable[Record]) -> bytes:
    """A copy of records, to be sealed under its name."""
    return msgspec.msgpack.encode(list(records))


def unpack(data: Buffer) -> dict[int, Record]:
    """The records of a copy by their offsets."""
    return {record.offset: record for record in msgspec.msgpack.decode(data, type=known(list[Record]))}


def _wanted(split: EventSplit) -> Iterator[int]:
    return (offset for stretch in stretches(split.start, split.runs) for offset in stretch)


def record_of(message: Message, topic_id: str) -> Record:
    """Convert a message of confluent_kafka to a record."""
    kind, milliseconds = message.timestamp()
    headers: Any = message.headers() or []
    return Record(
        topic=message.topic() or "",
        topic_id=topic_id,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in headers),
        time=milliseconds / 1000 if kind else 0.0,
    )


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _messages(consumer: Consumer, split: EventSplit) -> Iterator[Message]:
    """The messages from the split's first offset on. Raises the errors of `EventReader.read` if none arrives."""
    from confluent_kafka import KafkaError

    silent_since = time.monotonic()
    last: KafkaError | None = None
    while time.monotonic() < silent_since + _SILENCE:
        first = consumer.poll(1.0)  # `consume` alone would wait for a full batch
        for message in (first, *consumer.consume(_BATCH, timeout=0.0)) if first else ():
            error = message.error()
            if error is None:
                yield message
                silent_since = time.monotonic()  # the silence starts here, however long the message was processed
            elif error.code() == KafkaError._PARTITION_EOF:
                raise _gone(split, "the partition ends before the last of them")
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise _gone(split, f"offset {split.start} has expired or never was")
            else:
                last = error
    raise _away(split, str(last or "it does not answer"))


def _consumer(settings: Mapping[str, Any], split: EventSplit) -> Consumer:
    from confluent_kafka import Consumer, TopicPartition

    about = {
        "group.id": "treadle.range",  # required by librdkafka, but no reader joins it
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**settings, **about})
    consumer.assign([TopicPartition(split.topic, split.partition, split.start)])
    return consumer


def _check_topic(settings: Mapping[str, Any], split: EventSplit) -> None:
    """Refuse a topic that was deleted, or deleted and created again."""
    try:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient
    except ModuleNotFoundError as error:
        raise UsageError(
            "reading events of a Kafka topic needs confluent-kafka", "pip install 'treadle-executors[kafka]'"
        ) from error
    admin = AdminClient(dict(settings))  # freed with its pending requests
    try:
        asked = admin.describe_topics(TopicCollection([split.topic]), request_timeout=_SILENCE)
        found = topic_uuid(asked[split.topic].result().topic_id)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise _gone(split, "the topic does not exist") from error
        raise _away(split, str(error.args[0])) from error
    if found != split.topic_id:
        raise _gone(split, f"the topic was deleted and made again (its UUID is {found} now, not {split.topic_id})")


def topic_uuid(given: Any) -> str:
    """A topic's UUID as Kafka writes it. confluent_kafka writes it in plain Base64."""
    return str(given).replace("+", "-").replace("/", "_").rstrip("=")


def _gone(split: EventSplit, why: str) -> TreadleError:
    return DataError(
        f"events of {split.topic}, partition {split.partition}, cannot be read: {why}",
        "They cannot come back. If runs start late, write `events: capture` in the trigger, or let the topic keep its "
        "records longer.",
    )


def _away(split: EventSplit, why: str) -> TreadleError:
    return StoreError(
        f"the broker of the connection {split.connection!r} does not give events of {split.topic}: {why}",
        "Look whether it runs and whether workers reach it.",
        retryable=True,
    )
