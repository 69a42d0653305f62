"""Ranges of events that tasks read from a real broker: the same records as inline, or a refusal."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka import Broker

from treadle.executors.program import EventSplit, connection_secret
from treadle.executors.runtime import event_source
from treadle.executors.runtime.event_source import EventReader
from treadle.orchestrator.environment.kafka_connections import KafkaConnection, with_connections
from treadle.primitives.errors import DataError, StoreError, UsageError
from treadle.primitives.events import offset_ranges
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka.payloads import Topic, ask_topic

TOPIC = "ranges"
ABORTED = range(10, 15)
"""Offsets of an aborted transaction, followed by a marker."""


@dataclass(frozen=True)
class Ranges:
    """A topic whose partition 1 has gaps, with the expected values of its records."""

    reader: EventReader
    topic_id: str
    records: dict[int, Any]

    def split(self, *, start: int, runs: tuple[int, ...], **more: Any) -> EventSplit:
        known = EventSplit("broker", TOPIC, self.topic_id, 1, start, runs, "json")
        return msgspec.structs.replace(known, **more)

    def read(self, split: EventSplit) -> list[Any]:
        return [item for some in self.reader.read(split) for item in some]


def reader(kafka: Broker, **more: str) -> EventReader:
    connection = KafkaConnection.model_validate({"bootstrap.servers": kafka.bootstrap} | more)
    secret = with_connections({"broker": connection}, lambda name: f"value of {name}")
    name = connection_secret("broker")
    return EventReader(Store.open("memory://"), "run", secrets.token_bytes(32), {name: secret(name)})


def fill(kafka: Broker) -> dict[int, Any]:
    """Records, an aborted transaction, records of a transaction, records. The markers of transactions are gaps."""
    producer = Producer({**kafka.settings, "transactional.id": "ranges"})
    producer.init_transactions(30)
    at = iter(range(1000))
    found: dict[int, Any] = {}
    for size, ends in ((10, True), (len(ABORTED) - 1, False), (8, True), (12, True)):
        producer.begin_transaction()
        for _ in range(size):
            offset = next(at)
            producer.produce(TOPIC, json.dumps({"n": offset}).encode(), partition=1)
            if ends:
                found[offset] = {"n": offset}
        producer.flush(30)
        (producer.commit_transaction if ends else producer.abort_transaction)(30)
        next(at)  # the marker
    return found


@pytest.fixture(scope="module")
def ranges(kafka: Broker) -> Iterator[Ranges]:
    if not isinstance(kafka, Broker):
        pytest.skip("ranges need topic UUIDs, which only the real broker has")
    topic_id = event_source.topic_uuid(kafka.create_topic(TOPIC, 2))
    yield Ranges(reader(kafka), topic_id, fill(kafka))
    kafka.delete_topic(TOPIC)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_choice_of_records_in_any_pieces_is_read_as_it_would_be_inline(ranges: Ranges, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.sampled_from(sorted(ranges.records)), min_size=1)))
    cuts = data.draw(st.sets(st.integers(1, len(chosen)), max_size=2)) - {len(chosen)}
    bounds = [0, *sorted(cuts), len(chosen)]
    start, runs = offset_ranges.runs_of(chosen)
    found: list[Any] = []
    for first, stop in pairwise(bounds):
        piece_start, piece_runs = offset_ranges.piece(start, runs, first, stop)
        found += ranges.read(ranges.split(start=piece_start, runs=piece_runs))
    assert found == [ranges.records[offset] for offset in chosen]


def test_an_envelope_holds_what_expressions_see(ranges: Ranges) -> None:
    (event,) = ranges.read(ranges.split(start=3, runs=(1,), envelope=True))
    assert (event["id"], event["source"], event["data"]) == ("1/3", f"kafka://broker/{TOPIC}", {"n": 3})


@pytest.mark.parametrize("offset", [ABORTED.start, 10**6])
def test_missing_offset_is_an_error_not_an_empty_result(ranges: Ranges, offset: int) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        ranges.read(ranges.split(start=offset, runs=(1,)))


def test_the_end_of_the_partition_is_not_taken_for_the_end_of_the_range(ranges: Ranges) -> None:
    last = max(ranges.records)
    with pytest.raises(DataError, match="ends before"):
        ranges.read(ranges.split(start=last, runs=(1, 1, 1)))


def test_records_that_expired_are_missed(real_kafka: Broker) -> None:
    topic_id = event_source.topic_uuid(real_kafka.create_topic("expiring"))
    real_kafka.produce("expiring", [b"1", b"2", b"3"])
    real_kafka.delete_records("expiring", 1)
    split = EventSplit("broker", "expiring", topic_id, 0, 0, (2,), "json")
    with pytest.raises(DataError, match="expired"):
        list(reader(real_kafka).read(split))
    assert list(reader(real_kafka).read(msgspec.structs.replace(split, start=1))) == [[2, 3]]
    real_kafka.delete_topic("expiring")


def test_recreated_topic_is_not_read(real_kafka: Broker) -> None:
    old = event_source.topic_uuid(real_kafka.create_topic("mortal"))
    split = EventSplit("broker", "mortal", old, 0, 0, (1,), "json")
    real_kafka.delete_topic("mortal")
    with pytest.raises(DataError, match="does not exist"):
        list(reader(real_kafka).read(split))
    real_kafka.create_topic("mortal")
    real_kafka.produce("mortal", [b'"of another topic"'])
    with pytest.raises(DataError, match="made again"):
        list(reader(real_kafka).read(split))
    real_kafka.delete_topic("mortal")


def test_a_broker_that_is_away_can_be_tried_again(ranges: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_source, "_SILENCE", 1.0)
    name = connection_secret("broker")
    away = {name: json.dumps({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})}
    with pytest.raises(StoreError, match="broker") as caught:
        list(EventReader(Store.open("memory://"), "run", b"", away).read(ranges.split(start=0, runs=(1,))))
    assert caught.value.retryable


def test_a_connection_reaches_tasks_as_a_secret() -> None:
    table = {"bootstrap.servers": "b:1", "secrets": {"sasl.password": "lab"}}
    find = with_connections({"broker": KafkaConnection.model_validate(table)}, lambda name: f"value of {name}")
    assert json.loads(find("kafka.broker")) == {"bootstrap.servers": "b:1", "sasl.password": "value of lab"}
    assert find("other") == "value of other"
    with pytest.raises(UsageError, match="no Kafka connection 'elsewhere'"):
        find("kafka.elsewhere")


def test_a_broker_tells_how_long_a_topic_keeps_its_records(real_kafka: Broker, tmp_path: Path) -> None:
    real_kafka.create_topic("brief", retention_ms="3600000")
    real_kafka.create_topic("compacted", cleanup_policy="compact")
    assert ask_topic(real_kafka.settings, "brief") == Topic(3600.0)
    assert ask_topic(real_kafka.settings, "compacted") == Topic(None, None, True)
    assert ask_topic(real_kafka.settings, "nowhere") is None
