"""The reason why a cluster cannot be used is recognised and named, before and while a trigger runs."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import Broker
from kafka_security import as_user, lift, restrict
from triggers.source_suite import PATIENCE, Heard, until

from treadle.primitives.errors import UsageError
from treadle.triggers.kafka.acls import lacking
from treadle.triggers.kafka.cluster_interface import BrokerUnreachable
from treadle.triggers.kafka.confluent_cluster import ClusterSource
from treadle.triggers.kafka.connectivity import Connectivity, cause_of
from treadle.triggers.kafka.reader_settings import ReaderSettings
from treadle.triggers.kafka.topics import Topics


def closed_port(_: Broker) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"bootstrap.servers": f"127.0.0.1:{probe.getsockname()[1]}"}


CAUSES: dict[str, Callable[[Broker], dict[str, Any]]] = {
    "connection refused": closed_port,
    "the host name is unknown": lambda _: {"bootstrap.servers": "no-such-host.invalid:9092"},
    "the user or the password is wrong": lambda broker: {**as_user(broker), "sasl.password": "wrong"},
    "does not offer the SASL mechanism": lambda broker: {**as_user(broker), "sasl.mechanism": "SCRAM-SHA-512"},
    "the broker's certificate is not trusted": lambda broker: tls(broker.tls),
    "the listener does not speak TLS": lambda broker: tls(broker.bootstrap),
    "as a listener for TLS or SASL does": lambda broker: {"bootstrap.servers": broker.tls},
}


def tls(address: str) -> dict[str, Any]:
    """Settings that trust only the system's certificate authorities."""
    return {"bootstrap.servers": address, "security.protocol": "SSL"}


@pytest.mark.parametrize("cause", CAUSES)
def test_unusable_cluster_is_refused_with_the_cause(cause: str, real_kafka: Broker) -> None:
    topics = Topics(CAUSES[cause](real_kafka), Connectivity("prod"))
    with pytest.raises(BrokerUnreachable, match=cause) as caught:
        topics.partitions(["orders"])
    assert caught.value.message.startswith("Kafka connection prod, ")
    assert caught.value.hint


def test_right_certificate_is_trusted(real_kafka: Broker) -> None:
    settings = {**tls(real_kafka.tls), "ssl.ca.location": real_kafka.certificate}
    assert Topics(settings).partitions(["no-such-topic"]) == {}


def test_offsets_are_asked_for_again_while_a_partition_has_no_leader(
    real_kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_kafka.create_topic("electing")
    topics = Topics(real_kafka.settings)
    [partition] = topics.partitions(["electing"])["electing"]
    ask, refusals = AdminClient.list_offsets, [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]

    def refused(admin: AdminClient, wanted: dict[TopicPartition, Any], **options: Any) -> dict[Any, Any]:
        if not refusals:
            return ask(admin, wanted, **options)
        answer = Future[Any]()
        answer.set_exception(KafkaException(KafkaError(refusals.pop())))
        return dict.fromkeys(wanted, answer)

    monkeypatch.setattr(AdminClient, "list_offsets", refused)
    assert topics.offsets([partition], end=True) == {partition: 0}
    assert not refusals


def test_same_cause_is_logged_once_and_that_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "treadle.triggers")
    told = Connectivity("prod")
    line = "127.0.0.1:9092/bootstrap: Connect to ipv4 failed: Connection refused (after 0ms in state CONNECT)"
    for _ in range(100):
        told.error(KafkaError(KafkaError._TRANSPORT, line))
        told.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", f"[thrd:x]: {line}")
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == ["Kafka connection prod, 127.0.0.1"]
    told.answered()
    told.answered()
    assert [one.getMessage() for one in caplog.records[1:]] == ["Kafka connection prod: works again"]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("k:1/2: Disconnected: connection closed by peer (after 2ms in state UP)", "as a listener for TLS"),
        (
            "k:1/2: Disconnected: connection closed by peer (after 60000ms in state UP)",
            "the broker closed the connection",
        ),
        ("k:1/bootstrap: Connection setup timed out in state CONNECT (after 30028ms in state CONNECT)", "in time"),
        (
            "ssl://k:1/bootstrap: Disconnected: SSL connection closed by peer (after 0ms in state SSL_HANDSHAKE)",
            "the listener does not speak TLS",
        ),
        (
            "ssl://k:1/bootstrap: Disconnected: connection reset by peer (after 0ms in state SSL_HANDSHAKE)",
            "the listener does not speak TLS",
        ),
        ("ssl://k:1/bootstrap: SSL handshake failed: error:0A (after 3ms in state SSL_HANDSHAKE)", "TLS handshake"),
    ],
)
def test_line_of_the_library_is_understood(text: str, meaning: str) -> None:
    found = cause_of("prod", text)
    assert found is not None
    assert "prod, k:1: " in found.message
    assert meaning in found.message


# -- rights --------------------------------------------------------------------------------------------------------


def reading(topic: str) -> ReaderSettings:
    return ReaderSettings("prod", (topic,), f"{topic}.dlt", True, None, None)


def test_missing_rights_are_named_before_an_event_needs_them(real_kafka: Broker) -> None:
    admin = real_kafka.admin
    real_kafka.create_topic("rights")
    settings, group = as_user(real_kafka), "treadle.rights"
    topics = Topics(settings, Connectivity("prod"))

    def found(count: int) -> list[str]:
        """The broker applies new rights after a moment."""
        end = time.monotonic() + PATIENCE
        while len(problems := list(lacking(settings, topics, reading("rights"), group))) != count:
            assert time.monotonic() < end, problems
        return problems

    assert found(0) == []
    try:
        restrict(admin, "topic", "rights", "DESCRIBE")
        restrict(admin, "topic", "rights.dlt", "DESCRIBE")
        restrict(admin, "group", group)
        read, use = found(2)
        assert read == "the user may not read the topic 'rights'"
        assert use == "the user may not use the consumer group 'treadle.rights'"
        real_kafka.create_topic("rights.dlt")
        *_, write = found(3)
        assert write == "the user may not write dead letters to the topic 'rights.dlt'"
    finally:
        for topic in ("rights", "rights.dlt"):
            lift(admin, "topic", topic)
        lift(admin, "group", group)


# -- while it runs -------------------------------------------------------------------------------------------------


def patiently(done: Callable[[], bool], source: ClusterSource) -> None:
    """Like `until`, but `poll` may fail, as in the loop."""

    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, source.trouble
        with contextlib.suppress(UsageError, BrokerUnreachable):
            source.poll(10, 0.05)


def test_running_source_reports_a_problem_and_its_end(real_kafka: Broker) -> None:
    real_kafka.create_topic("watched")
    heard = Heard()
    source = ClusterSource(as_user(real_kafka), "treadle.watched", "one", ["watched"], heard)
    try:
        until(lambda: len(heard.mine) == 1 and source.lag() == 0, source)
        restrict(real_kafka.admin, "topic", "watched", "DESCRIBE")
        patiently(lambda: "may not read the topic 'watched'" in str(source.trouble or ""), source)
        assert source.lag() is None
        lift(real_kafka.admin, "topic", "watched")
        patiently(lambda: source.trouble is None and source.lag() == 0, source)
        real_kafka.delete_topic("watched")
        patiently(lambda: "the topic 'watched' does not exist" in str(source.trouble or ""), source)
    finally:
        lift(real_kafka.admin, "topic", "watched")
        source.close()


def test_running_source_names_the_cause_while_the_broker_is_away(real_kafka: Broker) -> None:
    real_kafka.create_topic("away")
    heard = Heard()
    source = ClusterSource({**real_kafka.settings}, "treadle.away", "one", ["away"], heard)
    try:
        until(lambda: len(heard.mine) == 1 and source.lag() == 0, source)
        real_kafka.stop()
        patiently(lambda: "connection refused" in str(source.trouble or ""), source)
        assert source.lag() is None
        real_kafka.start()
        patiently(lambda: source.trouble is None and source.lag() == 0, source)
    finally:
        if real_kafka.process is None:
            real_kafka.start()
        source.close()
