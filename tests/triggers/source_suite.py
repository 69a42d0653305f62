"""The behaviour of every EventSource: the guarantees that a trigger's loop relies on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from treadle.primitives.events import Record
from treadle.triggers.kafka.cluster_interface import BrokerUnreachable, EventSource, Listener
from treadle.triggers.kafka.machine_events import KafkaPartition, OutOfRange, Reached

PATIENCE = 60.0
"""Seconds; far more than any test here takes."""


class Heard:
    """A listener that reads from the committed offset, else from `start`, and records its calls."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.mine: set[KafkaPartition] = set()
        self.committed: dict[KafkaPartition, int | None] = {}
        self.log: list[str] = []

    def placed(self, partition: KafkaPartition, committed: int | None) -> int:
        self.mine.add(partition)
        self.committed[partition] = committed
        self.log.append(f"placed {partition.number}")
        return self.start if committed is None else committed

    def revoked(self, partitions: Sequence[KafkaPartition]) -> None:
        self.mine.difference_update(partitions)
        self.log += [f"revoked {one.number}" for one in partitions]

    def lost(self, partitions: Sequence[KafkaPartition]) -> None:
        self.mine.difference_update(partitions)
        self.log += [f"lost {one.number}" for one in partitions]


class Bench(Protocol):
    """A cluster with one topic of two partitions, for one test."""

    def join(self, name: str, listener: Listener) -> EventSource: ...

    def produce(self, partition: int, values: Sequence[bytes]) -> None: ...

    def topic_id(self) -> str: ...

    def make_again(self) -> None: ...

    def expire(self, partition: int, before: int) -> None: ...

    def move(self, partition: int, to: str) -> None:
        """Move a partition, for clusters that do not balance by themselves."""


def polled(source: EventSource) -> list[Record | OutOfRange]:
    """The polled events except the notes that reading is at an end."""
    return [one for one in source.poll(100, 0.05) if not isinstance(one, Reached)]


def until(done: Callable[[], bool], *sources: EventSource) -> None:
    """Poll the sources in turn until `done`. No record may come in the meantime."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it did not come about"
        for source in sources:
            assert polled(source) == []


def take(count: int, source: EventSource) -> list[Record]:
    """The next records. A cluster that does not answer is polled again, as in the loop."""
    end = time.monotonic() + PATIENCE
    found: list[Record] = []
    others: list[object] = []
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} came, and {others}"
        try:
            some = polled(source)
        except BrokerUnreachable as error:
            some = []
            others.append(error)
        found += [one for one in some if isinstance(one, Record)]
        others += [one for one in some if isinstance(one, OutOfRange)]
    return found


def silent(source: EventSource, turns: int = 10) -> bool:
    return not any(polled(source) for _ in range(turns))


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [one.value for one in records]


class SourceTests:
    """Subclasses define a fixture `bench`."""

    def test_records_come_in_order_from_where_the_listener_says(self, bench: Bench) -> None:
        bench.produce(0, [b"0", b"1", b"2", b"3"])
        source = bench.join("one", Heard(start=1))
        found = take(3, source)
        assert values(found) == [b"1", b"2", b"3"]
        assert [one.offset for one in found] == [1, 2, 3]
        assert {one.topic_id for one in found} == {bench.topic_id()}
        source.close()

    def test_next_consumer_receives_the_committed_offset(self, bench: Bench) -> None:
        bench.produce(0, [b"0", b"1", b"2"])
        heard = Heard()
        source = bench.join("one", heard)
        partition = take(3, source)[0]
        mine = next(one for one in heard.mine if one.number == partition.partition)
        assert heard.committed[mine] is None
        source.commit({mine: 2})
        source.close()
        assert not heard.mine
        source = bench.join("one", heard)
        assert values(take(1, source)) == [b"2"]
        assert heard.committed[mine] == 2
        source.close()

    def test_nothing_read_before_arrives_after_a_seek(self, bench: Bench) -> None:
        bench.produce(0, [b"%d" % number for number in range(20)])
        heard = Heard()
        source = bench.join("one", heard)
        take(1, source)
        mine = next(one for one in heard.mine if one.number == 0)
        for offset in (5, 15, 0):
            source.seek(mine, offset)
            assert take(1, source)[0].offset == offset
        source.close()

    def test_a_seek_holds_though_records_are_not_wanted_meanwhile(self, bench: Bench) -> None:
        bench.produce(0, [b"%d" % number for number in range(10)])
        heard = Heard()
        source = bench.join("one", heard)
        take(10, source)
        mine = next(one for one in heard.mine if one.number == 0)
        source.seek(mine, 2)
        source.reading(mine, False)
        source.reading(mine, True)
        assert take(1, source)[0].offset == 2
        source.reading(mine, False)
        source.seek(mine, 5)
        assert silent(source, 3)
        source.reading(mine, True)
        assert take(1, source)[0].offset == 5
        source.close()

    def test_unwanted_partition_waits(self, bench: Bench) -> None:
        heard = Heard()
        source = bench.join("one", heard)
        until(lambda: len(heard.mine) == 2, source)
        still = next(one for one in heard.mine if one.number == 0)
        source.reading(still, False)
        bench.produce(0, [b"a"])
        bench.produce(1, [b"b"])
        assert values(take(1, source)) == [b"b"]
        assert silent(source)
        source.reading(still, True)
        assert values(take(1, source)) == [b"a"]
        source.close()

    def test_partition_is_revoked_before_another_member_has_it(self, bench: Bench) -> None:
        one, two = Heard(), Heard()
        first = bench.join("one", one)
        until(lambda: len(one.mine) == 2, first)
        second = bench.join("two", two)
        bench.move(1, "two")
        until(lambda: len(two.mine) == 1, first, second)
        moved = next(iter(two.mine))
        assert f"revoked {moved.number}" in one.log
        assert len(one.mine) == 1
        assert moved not in one.mine
        bench.produce(moved.number, [b"x"])
        assert values(take(1, second)) == [b"x"]
        first.close()
        second.close()

    def test_recreated_topic_is_another_one_from_its_first_record_on(self, bench: Bench) -> None:
        bench.produce(0, [b"0", b"1", b"2"])
        heard = Heard()
        source = bench.join("one", heard)
        take(3, source)
        old = next(one for one in heard.mine if one.number == 0)
        source.commit({old: 3})
        bench.make_again()
        bench.produce(0, [b"n%d" % number for number in range(5)])
        found = take(5, source)
        assert values(found) == [b"n%d" % number for number in range(5)]
        assert {one.topic_id for one in found} == {bench.topic_id()} != {old.topic_id}
        assert old not in heard.mine
        new = next(one for one in heard.mine if one.number == 0)
        assert heard.committed[new] is None
        source.close()

    def test_position_without_records_is_reported_with_the_existing_range(self, bench: Bench) -> None:
        bench.produce(0, [b"%d" % number for number in range(10)])
        heard = Heard()
        source = bench.join("one", heard)
        take(10, source)
        bench.expire(0, 6)
        mine = next(one for one in heard.mine if one.number == 0)
        source.seek(mine, 2)
        told: list[Record | OutOfRange] = []
        end = time.monotonic() + PATIENCE
        while not told and time.monotonic() < end:
            told += polled(source)
        assert told == [OutOfRange(mine, 6, 10)]
        source.seek(mine, 6)
        assert [one.offset for one in take(4, source)] == [6, 7, 8, 9]
        source.close()
