"""Dead letters hold the whole record, and reading them never ends early in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from treadle.cli.common import formatting
from treadle.primitives.events import Record
from treadle.triggers.dead_letter_replay import of_topic
from treadle.triggers.kafka import dead_letters
from treadle.triggers.kafka.cluster_interface import BrokerUnreachable, ConsumerBroken
from treadle.triggers.kafka.connectivity import Connectivity
from treadle.triggers.kafka.dead_letters import (
    Graveyard,
    Headers,
    KafkaDeadLetter,
    headers,
    letter_of,
    read_letters,
    shortened,
)
from treadle.triggers.kafka.machine_events import Bury, EffectDone, EffectFailed, KafkaPartition

RECORD = Record("orders", "u", 2, 17, b"key", b"value", (("trace", b"t"), ("none", None)), 1.001)
REASON = "it does not fit"


def said(record: Record, reason: str = REASON, *, omitted: bool = False) -> Headers:
    """The headers of a record's letter."""
    return headers(Bury(7, record, 3, reason), "orders.live", "group", omitted=omitted)


class Message:
    """A message of confluent_kafka for a letter at offset 5 of its topic."""

    def __init__(self, record: Record, found: Any, offset: int = 5, error: int | None = None) -> None:
        self._record, self._headers, self._offset = record, found, offset
        self._error = None if error is None else KafkaError(error)

    def topic(self) -> str:
        return "orders.dlt"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def error(self) -> KafkaError | None:
        return self._error


def letter(record: Record, reason: str = REASON, *, omitted: bool = False) -> KafkaDeadLetter:
    return letter_of(Message(record, said(record, reason, omitted=omitted)))  # type: ignore[arg-type]


def test_a_letter_holds_the_record_and_why_it_is_one() -> None:
    found = letter(RECORD)
    assert found.record == RECORD
    assert (found.id, found.trigger, found.version, found.reason) == ("orders.dlt/1/5", "orders.live", 3, REASON)
    assert not found.omitted
    assert letter(RECORD, omitted=True).omitted
    written = dict(said(RECORD))
    assert written["kafka_dlt-original-timestamp"] == (1001).to_bytes(8, "big")
    assert written["kafka_dlt-original-consumer-group"] == b"group"
    assert written["kafka_dlt-original-partition"] == (2).to_bytes(4, "big")
    assert written["kafka_dlt-original-offset"] == (17).to_bytes(8, "big")
    assert dict(said(RECORD, "\ud800" * 3000))["kafka_dlt-exception-message"] == b"?" * 2000
    assert len(letter(RECORD, "ä" * 3000).reason) == 2000


@pytest.mark.parametrize("time", [0.0, -0.001, 1.7e12, 2.0**63 / 1000, -(2.0**63) / 1000])
def test_any_timestamp_that_a_producer_may_stamp_can_be_buried(time: float) -> None:
    record = Record("orders", "u", 2, 17, b"key", b"value", (), time)
    assert letter(record).record.time == time


@pytest.mark.parametrize(("time", "shown"), [(1.7e9, 1.7e9), (1.7e12, 0.0), (2.0**63 / 1000, 0.0), (-1e12, 0.0)])
def test_a_letter_whose_record_no_calendar_has_can_be_listed(time: float, shown: float) -> None:
    found = of_topic(letter(Record("orders", "u", 2, 17, b"key", b"value", (), time)))
    assert found.time == shown
    assert bool(formatting.moment(found.time)) == bool(formatting.stamp(found.time)) == bool(shown)


def test_a_letter_that_is_buried_again_says_its_last_reason_only() -> None:
    again = Record("orders.dlt", "v", 0, 5, b"key", b"value", tuple(said(RECORD)), 2.0)  # type: ignore[arg-type]
    found = letter(again, "still not")
    assert (found.reason, found.record.topic, found.record.offset) == ("still not", "orders.dlt", 5)
    assert found.record.headers == RECORD.headers


def test_foreign_letter_belongs_to_no_trigger() -> None:
    odd = [("treadle-version", b"x"), ("kafka_dlt-original-timestamp", b"\x7f" * 2000)]
    for given in (None, [("other", b"x")], odd):
        found = letter_of(Message(RECORD, given))  # type: ignore[arg-type]
        assert (found.trigger, found.version, found.reason) == ("", 0, "")


def test_foreign_numbers_of_any_size_can_be_shown() -> None:
    names = ("treadle-version", "kafka_dlt-original-partition", "kafka_dlt-original-offset")
    found = letter_of(Message(RECORD, [(name, b"9" * 5000) for name in names]))  # type: ignore[arg-type]
    assert len(str((found.version, found.record.partition, found.record.offset))) < 60


def test_place_of_a_value_replaces_it() -> None:
    about = {"topic": "orders", "topicId": "u", "partition": 2, "offset": 17, "bytes": 5}
    short = shortened(RECORD)
    assert json.loads(short.value or b"") == about
    assert (short.key, short.headers) == (RECORD.key, RECORD.headers)
    assert json.loads(shortened(Record("orders", "u", 2, 17)).value or b"")["bytes"] == 0


@pytest.mark.parametrize("own", [{"key": bytes(2**20)}, {"headers": (("trace", bytes(2**20)),)}])
def test_a_key_or_headers_that_no_topic_takes_are_left_out_with_the_value(own: dict[str, Any]) -> None:
    short = shortened(msgspec.structs.replace(RECORD, **own))
    assert (short.key, short.headers) == (None, ())
    assert len(short.value or b"") + sum(len(value or b"") for _, value in said(short, omitted=True)) < 1000


# -- writing -------------------------------------------------------------------------------------------------------


class Producer:
    """Answers each letter with the next of `errors`, at once. None: delivered."""

    def __init__(self, settings: dict[str, Any], **_: Any) -> None:
        self.settings = settings
        self.errors: list[int | Exception | None] = []
        self.values: list[bytes | None] = []

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *, headers: Any, on_delivery: Any) -> None:
        assert (topic, key) == ("orders.dlt", b"key")
        assert (("treadle-value", b"omitted") in headers) is (value != b"value")
        self.values.append(value)
        error = self.errors.pop(0)
        if isinstance(error, Exception):
            raise error
        on_delivery(None if error is None else KafkaError(error), None)

    def poll(self, _: float) -> None:
        pass


class Yard:
    """A writer of letters with its producer, the topics it created and the answers it gave."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.answers: list[EffectDone | EffectFailed] = []
        monkeypatch.setattr(dead_letters, "Producer", Producer)
        monkeypatch.setattr(
            dead_letters, "Topics", lambda *_: SimpleNamespace(create=self.made.append, connectivity=Connectivity("c"))
        )
        settings = {"bootstrap.servers": "x:1"}
        self.graveyard = Graveyard(settings, "orders.dlt", "orders.live", "group", self.answers.append)
        self.producer = cast(Producer, self.graveyard._producer)  # private: the test plays the broker

    def bury(self, *errors: int | Exception | None) -> list[Any]:
        """The answers, as (type, ticket)."""
        self.producer.errors = list(errors)
        self.graveyard.bury(Bury(7, RECORD, 3, REASON))
        assert self.producer.errors == []
        assert all(one.ticket == 7 for one in self.answers)
        return [type(one) for one in self.answers]


def test_a_letter_is_buried_when_it_is_there_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(monkeypatch)
    assert yard.bury(None) == [EffectDone]
    assert yard.producer.values == [b"value"]
    assert yard.producer.settings["enable.idempotence"] is True
    assert yard.producer.settings["bootstrap.servers"] == "x:1"
    assert yard.bury(KafkaError._MSG_TIMED_OUT) == [EffectDone, EffectFailed]
    assert yard.made == []


def test_a_letter_too_large_for_its_topic_is_written_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(monkeypatch)
    assert yard.bury(KafkaError.MSG_SIZE_TOO_LARGE, None) == [EffectDone]
    assert yard.producer.values == [b"value", shortened(RECORD).value]
    refused = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert yard.bury(refused, KafkaError.MSG_SIZE_TOO_LARGE) == [EffectDone, EffectFailed], "and only once"


def test_a_topic_of_letters_that_is_missing_is_made_and_the_letter_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(monkeypatch)
    assert yard.bury(KafkaError.UNKNOWN_TOPIC_OR_PART) == [EffectFailed]
    assert yard.made == ["orders.dlt"]
    assert "orders.dlt" in cast(EffectFailed, yard.answers[0]).reason


def test_more_letters_than_the_producer_holds_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Yard(monkeypatch).bury(BufferError("full")) == [EffectFailed]


def test_a_producer_that_will_never_write_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(monkeypatch)
    yard.bury(KafkaError._MSG_TIMED_OUT)
    yard.graveyard.poll()
    assert yard.bury(KafkaException(KafkaError(KafkaError._FATAL))) == [EffectFailed, EffectFailed]
    with pytest.raises(ConsumerBroken):
        yard.graveyard.poll()


# -- reading -------------------------------------------------------------------------------------------------------


class Consumer:
    """Returns the messages in `given`, then none."""

    given: list[Any]
    closed = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self._left = list(Consumer.given)

    def assign(self, _: Any) -> None:
        pass

    def poll(self, _: float) -> Any:
        return self._left.pop(0) if self._left else None

    def close(self) -> None:
        Consumer.closed += 1


class Topics:
    """Partition 1 of the topic has offsets 0 to 2. Partition 0 is empty."""

    def __init__(self, *_: Any) -> None:
        pass

    def partitions(self, topics: Sequence[str]) -> dict[str, list[KafkaPartition]]:
        return {"orders.dlt": [KafkaPartition("orders.dlt", "u", number) for number in (0, 1)]}

    def offsets(self, partitions: Sequence[KafkaPartition], end: bool) -> dict[KafkaPartition, int]:
        return {one: 3 * end * one.number for one in partitions}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "Consumer", Consumer)
    monkeypatch.setattr(dead_letters, "Topics", Topics)
    monkeypatch.setattr(Consumer, "closed", 0)


def messages(*offsets: int) -> list[Any]:
    return [Message(RECORD, said(RECORD), offset) for offset in offsets]


@pytest.mark.usefixtures("broker")
def test_letters_are_read_to_the_end_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consumer, "given", messages(0, 1, 2, 3), raising=False)
    assert [one.offset for one in read_letters({}, "orders.dlt")] == [0, 1, 2]
    assert [one.offset for one in read_letters({}, "orders.dlt", "orders.live")] == [0, 1, 2]
    assert list(read_letters({}, "orders.dlt", "orders.other")) == []
    assert Consumer.closed == 3
    end = Message(RECORD, None, 2, KafkaError._PARTITION_EOF)
    monkeypatch.setattr(Consumer, "given", [*messages(0), end], raising=False)
    assert [one.offset for one in read_letters({}, "orders.dlt")] == [0], "the rest was a transaction's end"


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("last", [None, KafkaError._ALL_BROKERS_DOWN])
def test_broker_that_falls_silent_is_reported(monkeypatch: pytest.MonkeyPatch, last: int | None) -> None:
    ends = [] if last is None else [Message(RECORD, None, 1, last)]
    monkeypatch.setattr(Consumer, "given", [*messages(0), *ends], raising=False)
    found = read_letters({}, "orders.dlt")
    assert next(found).offset == 0
    with pytest.raises(BrokerUnreachable):
        next(found)
    assert Consumer.closed == 1
