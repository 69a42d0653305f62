"""From a batch or a dead letter to the order of its run."""

from __future__ import annotations

from typing import Any

import pytest
from triggers.test_judge import OBJECTS, PUT, S3, known, record, version

from treadle.dsl.triggers import KafkaTrigger
from treadle.primitives.errors import UsageError
from treadle.primitives.events import Record
from treadle.triggers.dead_letter_replay import replay_orders
from treadle.triggers.event_mapping import Unfit
from treadle.triggers.kafka.batch import KafkaBatch
from treadle.triggers.kafka.dead_letters import KafkaDeadLetter
from treadle.triggers.kafka.matching import Lineage
from treadle.triggers.start_requests import StartOrder

BATCH = {"maxEvents": 5, "maxWait": "1s"}


def gathered(at: Lineage, *records: Record) -> KafkaBatch:
    """The batch of a machine for matching records, and for one that it passed over behind them."""
    matched = tuple(match for one in records for match in at.judge(one).matches)
    return KafkaBatch(at.newest.version, matched, records[-1].offset + 2)


def nobody(batch: KafkaBatch, trigger: KafkaTrigger) -> Any:
    raise AssertionError("nothing wants the events")


def test_a_record_gives_its_run_its_inputs() -> None:
    given = {"n": "${{ event.data.n }}", "second": "${{ trigger.time.second }}", "plain": "trigger.events"}
    at = known(version(3, {}, with_=given))
    batch = gathered(at, record(7, value=b'{"n": 5}', time=61.0))
    wanted = StartOrder("orders.live.ua.0.7", "orders", 3, "live", {"n": 5, "second": 1, "plain": "trigger.events"})
    assert at.newest.order_for(batch, nobody) == wanted


def test_a_batch_has_its_events_and_the_time_of_its_first_and_its_end_travels() -> None:
    at = known(version(1, {}, batch=BATCH, with_={"all": "${{ trigger.events }}", "at": "${{ trigger.time.epoch }}"}))
    batch = gathered(at, record(7, time=61.0), record(9, time=99.0))
    asked: list[tuple[KafkaBatch, str]] = []

    def events(batch: KafkaBatch, trigger: KafkaTrigger) -> Any:
        asked.append((batch, trigger.type))
        return ["a", "b"]

    order = at.newest.order_for(batch, events)
    assert order.inputs == {"all": ["a", "b"], "at": 61}
    assert order.memo == {"end": 11, "count": 2}
    assert asked == [(batch, "kafka")]


def test_a_batch_has_no_single_event() -> None:
    at = known(version(1, {}, batch=BATCH, with_={"n": "${{ event.data.n }}"}))
    with pytest.raises(Unfit, match="with: there is no event"):
        at.newest.order_for(gathered(at, record(7, value=b'{"n": 5}')), nobody)


def test_order_has_the_uri_and_size_of_objects() -> None:
    at = known(version(1, {}, **OBJECTS, with_={"all": "${{ trigger.events }}"}))
    batch = gathered(at, record(0, value=(S3 % PUT % ("one", 5)).encode()))
    [found] = at.newest.order_for(batch, nobody).inputs["all"]
    assert (found["uri"], found["size"]) == ("s3://b/one", 5)


# -- dead letters --------------------------------------------------------------------------------------------------


def letter(value: bytes | None, *, omitted: bool = False) -> KafkaDeadLetter:
    return KafkaDeadLetter("a.dlt", 0, 3, record(7, value=value), "orders.live", 1, "it did not fit", omitted)


def test_a_letter_is_judged_by_the_newest_version_and_each_replay_has_a_run() -> None:
    at = known(version(1, {"a": 0}, filter="false"), version(2, {"a": 100}, filter="event.data.n > 1"))
    wanted = StartOrder("orders.live.ua.0.7.r1", "orders", 2, "live", {})
    assert replay_orders(letter(b'{"n": 2}'), at, nobody) == [wanted]
    assert [one.run for one in replay_orders(letter(b'{"n": 2}'), at, nobody, 4)] == ["orders.live.ua.0.7.r4"]
    assert replay_orders(letter(b'{"n": 1}'), at, nobody) == []


@pytest.mark.parametrize(("value", "reason"), [(b"{", "no JSON"), (b"{}", r"filter: there is no event\.data\.n")])
def test_a_letter_that_is_still_dead_says_why(value: bytes, reason: str) -> None:
    at = known(version(1, {}, filter="event.data.n > 1"))
    with pytest.raises(UsageError, match=rf"a\.dlt/0/3 is a dead letter still: .*{reason}"):
        replay_orders(letter(value), at, nobody)


def test_a_letter_without_its_value_says_where_it_was() -> None:
    with pytest.raises(UsageError, match="does not hold the value") as caught:
        replay_orders(letter(b"{}", omitted=True), known(version(1, {})), nobody)
    assert caught.value.hint.endswith("a, partition 0, offset 7.")


@pytest.mark.parametrize(("asked", "given"), [("inline", "inline"), ("range", "capture"), ("auto", "capture")])
def test_records_of_a_replayed_run_are_copied_because_they_may_expire(asked: str, given: str) -> None:
    at = known(version(1, {}, events=asked, batch=BATCH, with_={"all": "${{ trigger.events }}"}))
    ends: list[int] = []

    def events(batch: KafkaBatch, trigger: KafkaTrigger) -> Any:
        ends.append(batch.end)
        return trigger.events

    [order] = replay_orders(letter(b"{}"), at, events)
    assert order.inputs == {"all": given}
    assert (ends, order.memo) == ([8], {"end": 8, "count": 1})
