"""The broker of the other tests behaves as they expect."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import Broker
from kafka_security import PASSWORD, USER


def test_recreated_topic_is_another_topic(real_kafka: Broker) -> None:
    first = real_kafka.create_topic("again", 2)
    real_kafka.produce("again", [b"1", b"2"])
    real_kafka.delete_topic("again")
    assert real_kafka.create_topic("again", 2) != first
    assert real_kafka.end_offset("again") == 0


def test_the_sasl_listener_knows_its_user(real_kafka: Broker) -> None:
    real_kafka.create_topic("closed")
    real_kafka.produce("closed", [b"1"])
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    known = {"bootstrap.servers": real_kafka.sasl, "group.id": "sasl", "sasl.password": PASSWORD, **login}
    reader = Consumer(known)
    assert reader.get_watermark_offsets(TopicPartition("closed", 0), timeout=30) == (0, 1)
    reader.close()


def lows_and_highs(kafka: Broker, topic: str) -> tuple[int, int]:
    reader = Consumer({**kafka.settings, "group.id": topic})
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return low, high
    finally:
        reader.close()


def test_records_can_expire(real_kafka: Broker) -> None:
    real_kafka.create_topic("expired")
    assert real_kafka.produce("expired", [b"1", None, b"3"]) == [0, 1, 2]
    real_kafka.delete_records("expired", 2)
    assert lows_and_highs(real_kafka, "expired") == (2, 3)


@pytest.mark.chaos
def test_records_survive_a_kill(real_kafka: Broker) -> None:
    """The schedules of faults restart it. Its second start takes as long as its first."""
    real_kafka.create_topic("kept")
    real_kafka.produce("kept", [b"1", b"2"])
    real_kafka.kill()
    real_kafka.start()
    assert real_kafka.end_offset("kept") == 2, "and it has a leader again"
    assert lows_and_highs(real_kafka, "kept") == (0, 2)
