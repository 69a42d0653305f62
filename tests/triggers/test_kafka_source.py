"""The source in memory and the source of a real cluster behave alike."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from eventually import eventually
from kafka import Broker
from triggers.source_suite import PATIENCE, Bench, Heard, SourceTests, take, until, values
from triggers.world import TOPIC, Owner, World

from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Record
from treadle.triggers.kafka import confluent_cluster
from treadle.triggers.kafka.cluster_interface import ConsumerFenced, EventSource, Listener
from treadle.triggers.kafka.confluent_cluster import ClusterSource

TRIGGER = {"type": "kafka", "connection": "c", "topics": [TOPIC], "format": "json"}
_NUMBERS = itertools.count()


class _Indifferent(World):
    """Commits every offset without a check."""

    def check_done(self, record: Record) -> None:
        pass


class MemoryBench:
    """Each of two members gets one of two partitions."""

    def __init__(self) -> None:
        self.world = _Indifferent(TRIGGER, 2, None)
        self.members: dict[str, Owner] = {}

    def join(self, name: str, listener: Listener) -> EventSource:
        self.members[name] = owner = Owner(self.world, len(self.members))
        owner.source.listener = listener
        if not any(one.assigned for one in self.world.owners):
            owner.assigned = {0, 1}
        self.world.owners.append(owner)
        return _Leaving(owner)

    def produce(self, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self.world.produce(partition, value)

    def topic_id(self) -> str:
        return self.world.life.id

    def make_again(self) -> None:
        self.world.make_topic()

    def expire(self, partition: int, before: int) -> None:
        self.world.expire(partition, before)

    def move(self, partition: int, to: str) -> None:
        self.world.assign(partition, self.members[to], silently=False)


class ClusterBench:
    """The cluster balances by itself."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.topic = broker, f"source-{next(_NUMBERS)}"
        self.uuid = broker.create_topic(self.topic, 2)

    def join(self, name: str, listener: Listener) -> EventSource:
        settings = {**self.broker.settings, "topic.metadata.refresh.interval.ms": 500, "session.timeout.ms": 6000}
        return ClusterSource(settings, f"group-{self.topic}", name, [self.topic], listener)

    def produce(self, partition: int, values: Sequence[bytes]) -> None:
        self.broker.produce(self.topic, values, partition=partition)

    def topic_id(self) -> str:
        return self.uuid.replace("+", "-").replace("/", "_")

    def make_again(self) -> None:
        self.broker.delete_topic(self.topic)
        self.uuid = self.broker.create_topic(self.topic, 2)
        eventually(lambda: not any(self.broker.end_offset(self.topic, one) for one in (0, 1)))  # not the old log's

    def expire(self, partition: int, before: int) -> None:
        self.broker.delete_records(self.topic, before, partition)

    def move(self, partition: int, to: str) -> None:
        pass


class TestMemory(SourceTests):
    @pytest.fixture
    def bench(self) -> Bench:
        return MemoryBench()


class TestCluster(SourceTests):
    @pytest.fixture
    def bench(self, real_kafka: Broker) -> Bench:
        return ClusterBench(real_kafka)

    def test_records_of_an_aborted_transaction_never_come(self, bench: ClusterBench) -> None:
        from confluent_kafka import Producer

        producer = Producer({**bench.broker.settings, "transactional.id": bench.topic})
        producer.init_transactions()
        for number, end in enumerate((producer.abort_transaction, producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(bench.topic, b"%d" % number, partition=0)
            producer.flush()
            end()
        source = bench.join("one", Heard())
        assert values(take(1, source)) == [b"1"]
        source.close()

    def test_record_from_before_a_seek_is_dropped(self, bench: ClusterBench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.produce(0, [b"0", b"1"])
        early = Consumer({**bench.broker.settings, "group.id": "early"})
        early.assign([TopicPartition(bench.topic, 0, 0)])
        late = early.consume(1, timeout=PATIENCE)

        class Delayed(Consumer):
            def consume(self, *args: Any, **kwargs: Any) -> list[Message]:
                found = super().consume(*args, **kwargs)
                return [*late, *found] if found else found

        monkeypatch.setattr(confluent_cluster, "Consumer", Delayed)
        source = bench.join("one", Heard(start=1))
        assert values(take(1, source)) == [b"1"]
        source.close()
        early.close()

    def test_lag_is_known_of_partitions_that_gave_no_record_yet(self, bench: ClusterBench) -> None:
        for number in (0, 1):
            bench.produce(number, [b"a", b"b"])
        heard = Heard(start=2)
        source = bench.join("one", heard)
        until(lambda: len(heard.mine) == 2 and source.lag() == 0, source)
        bench.produce(0, [b"c"])
        take(1, source)
        assert source.lag() == 0
        source.close()

    def test_second_process_of_one_name_fences_the_first(self, bench: ClusterBench) -> None:
        first = bench.join("one", Heard())
        bench.produce(0, [b"a"])
        take(1, first)
        second = bench.join("one", Heard())
        take(1, second)
        with pytest.raises(ConsumerFenced):
            until(lambda: False, first)
        first.close()
        second.close()


class _Leaving:
    """A source whose member leaves the world when it is closed."""

    def __init__(self, owner: Owner) -> None:
        self._owner, self._source = owner, owner.source
        self.poll, self.commit, self.seek = self._source.poll, self._source.commit, self._source.seek
        self.reading, self.lag = self._source.reading, self._source.lag

    @property
    def trouble(self) -> TreadleError | None:
        return self._source.trouble

    def close(self) -> None:
        self._source.close()
        self._owner.world.owners.remove(self._owner)
