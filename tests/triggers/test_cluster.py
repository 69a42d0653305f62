"""Errors of one partition alone are handled. The library raises only errors that concern all partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from triggers.source_suite import Heard

from treadle.primitives.errors import UsageError
from treadle.triggers.kafka import confluent_cluster
from treadle.triggers.kafka.cluster_interface import BrokerUnreachable
from treadle.triggers.kafka.confluent_cluster import ClusterSource, commit_as_nobody
from treadle.triggers.kafka.connectivity import Connectivity
from treadle.triggers.kafka.machine_events import KafkaPartition

PARTITIONS = [KafkaPartition("t", "u", number) for number in (0, 1)]


class Consumer:
    """Gets both partitions of a topic in its first poll. `trouble`: the cluster's answer for the second one."""

    def __init__(self, trouble: int | None) -> None:
        self.trouble = trouble
        self.closed = False
        self._assign: Callable[[Any, list[TopicPartition]], None] | None = None

    def subscribe(self, topics: list[str], *, on_assign: Any, **_: Any) -> None:
        self._assign = on_assign

    def consume(self, most: int, timeout: float) -> list[Any]:
        if self._assign is not None:
            assign, self._assign = self._assign, None
            assign(self, [TopicPartition("t", number) for number in (0, 1)])
        return []

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        return [self._answer(one.partition, 7) for one in places]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        assert [one.metadata for one in offsets] == ["u", "u"]
        return [self._answer(one.partition, one.offset) for one in offsets]

    def _answer(self, number: int, offset: int) -> Any:
        error = KafkaError(self.trouble) if self.trouble is not None and number == 1 else None
        return SimpleNamespace(
            topic="t", partition=number, offset=-1001 if error else offset, metadata="u", error=error
        )

    def close(self) -> None:
        self.closed = True

    def nothing(self, *_: Any) -> None:
        pass

    assign = incremental_assign = pause = resume = seek = nothing


class Topics:
    def __init__(self, *_: Any) -> None:
        self.connectivity = Connectivity("c")

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "u")


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer(KafkaError.UNSTABLE_OFFSET_COMMIT)
    monkeypatch.setattr(confluent_cluster, "Consumer", lambda *_, **__: made)
    monkeypatch.setattr(confluent_cluster, "Topics", Topics)
    monkeypatch.setattr(confluent_cluster, "HealthCheck", lambda *_: SimpleNamespace(tick=lambda: False))
    return made


def test_no_offset_is_guessed_where_the_cluster_does_not_tell_it(consumer: Consumer) -> None:
    heard = Heard(start=0)
    source = ClusterSource({}, "group", "one", ["t"], heard)
    with pytest.raises(BrokerUnreachable):
        source.poll(10, 0.0)
    assert heard.committed == {}
    consumer.trouble = None
    assert source.poll(10, 0.0) == []
    assert heard.committed == dict.fromkeys(PARTITIONS, 7)


def test_refused_offset_is_reported(consumer: Consumer) -> None:
    source = ClusterSource({}, "group", "one", ["t"], Heard())
    offsets = dict.fromkeys(PARTITIONS, 9)
    with pytest.raises(BrokerUnreachable):
        source.commit(offsets)
    consumer.trouble = None
    source.commit(offsets)


def test_a_setting_that_is_none_is_for_a_person_to_mend() -> None:
    with pytest.raises(UsageError, match=r"no\.such\.setting"):
        ClusterSource({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "x"}, "group", "one", ["t"], Heard())


def test_a_group_that_has_members_is_not_moved(consumer: Consumer) -> None:
    consumer.trouble = KafkaError.UNKNOWN_MEMBER_ID
    with pytest.raises(UsageError, match="a service runs the trigger now"):
        commit_as_nobody({}, "group", dict.fromkeys(PARTITIONS, 9))
    assert consumer.closed
