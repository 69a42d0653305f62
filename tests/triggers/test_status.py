"""The status of a service is correct: counts, open runs, waiting records, and the start of a problem."""

from __future__ import annotations

import asyncio
from typing import Any

from eventually import eventually_async
from kafka import Broker
from triggers.stages import home, stage
from triggers.test_machine import A, machine, match, passed

from treadle.cli.trigger_output import TriggerLine, count, state
from treadle.orchestrator.environment.home import Home
from treadle.triggers.kafka.machine_events import Arrived, Commit, EffectDone, EffectFailed, Judged, Reached, Start
from treadle.triggers.status_store import StatusStore
from treadle.triggers.trigger_runner import TriggerStatus

__all__ = ["home"]


def test_machine_counts_what_becomes_of_each_record_once() -> None:
    it = machine()
    dead = Judged(match(A, 3).record, 1, reason="odd")
    arrived = Arrived(A, (match(A, 0), match(A, 1), passed(A, 2), dead))
    starts = [one for one in it.handle(arrived, 0.0) if isinstance(one, Start)]
    it.handle(arrived, 0.0)
    it.handle(EffectDone(starts[0].ticket, new=False), 0.0)
    it.handle(EffectDone(starts[1].ticket), 0.0)
    assert (it.received, it.started, it.repeated, it.filtered) == (4, 1, 1, 1)


def test_machine_keeps_the_trouble_of_letters_while_starts_work() -> None:
    it = machine()
    dead = Judged(match(A, 0).record, 1, reason="odd")
    letter, start = it.handle(Arrived(A, (dead, match(A, 1))), 0.0)
    assert isinstance(start, Start)
    it.handle(EffectFailed(letter.ticket, "no right to write"), 0.0)  # type: ignore[union-attr]
    it.handle(EffectDone(start.ticket), 0.0)
    assert it.trouble == "no right to write"
    (again,) = it.tick(1.0)
    it.handle(EffectDone(again.ticket), 1.0)  # type: ignore[union-attr]
    assert it.trouble == ""


def test_machine_commits_the_end_of_a_partition_behind_the_last_record() -> None:
    it = machine()
    it.handle(Arrived(A, (passed(A, 0),)), 0.0)
    it.tick(0.0)
    it.handle(Reached(A, 2), 0.0)
    assert Commit(A, 2) in it.tick(5.0)
    it.handle(Reached(A, 1), 5.0)
    assert it.tick(10.0) == []


def status(**values: Any) -> TriggerStatus:
    return TriggerStatus("w", "live", "kafka", 1, "running", **values)


def test_counts_go_on_where_an_earlier_service_stopped() -> None:
    memory = StatusStore()
    memory.add(status(started=2, dead=1, received=5))
    memory.add(status(started=1))
    memory.add(TriggerStatus("w", "nightly", "schedule", 1, "running", started=7))
    total = memory.total(status(started=4, repeated=3))
    assert (total.started, total.dead, total.received, total.repeated) == (7, 1, 5, 3)
    assert memory.total(TriggerStatus("w", "nightly", "schedule", 1, "running", started=8)).started == 8
    (rest,) = memory.rest([])
    assert (rest.state, rest.started) == ("stopped", 3)
    assert memory.rest([status()]) == []


def test_unknown_count_is_not_shown_as_zero() -> None:
    line = TriggerLine("w.live", "kafka", 1, "", "running", started=1200, active=0)
    assert [count(line, name) for name in ("started", "active", "lag", "dead")] == ["1,200", "0", "?", "?"]
    hook = TriggerLine("w.hook", "webhook", 1, "", "unserved")
    assert [count(hook, name) for name in ("started", "lag")] == ["?", "-"]


def test_state_says_since_when_something_is_wrong() -> None:
    since = "2026-11-21T10:50:18+00:00"
    assert state(TriggerLine("w.live", "kafka", 1, "", "running")) == "running"
    assert state(TriggerLine("w.live", "kafka", 1, "", "failing", error="away", since=since)).startswith(
        "failing since 2026"
    )
    paused = state(TriggerLine("w.live", "kafka", 1, "", "paused", error="away", since=since))
    assert paused.startswith("paused, failing since 2026")


# -- on a real broker ----------------------------------------------------------------------------------------------


async def test_records_that_wait_are_counted_while_a_trigger_rests(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy)
        here.site.registry.pause(here.name, "live")
        await here.serve()

        async def waiting(count: int) -> bool:
            found = here.status()
            return found is not None and (found.state, found.lag) == ("paused", count)

        await eventually_async(lambda: waiting(0))
        real_kafka.produce(here.topic, [b"1"] * 5)
        await eventually_async(lambda: waiting(5))
        here.site.registry.unpause(here.name, "live")

        async def all_open() -> bool:
            found = here.status()
            return found is not None and (found.active, found.started, found.lag) == (5, 5, 0)

        await eventually_async(all_open)


async def test_restarted_service_continues_its_counts_and_reports_earlier_ones(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy)
        real_kafka.produce(here.topic, [b"1", b"2"])
        await here.serve()
        await here.until_done()
        await here.stop()
        reset(real_kafka, here.group(), here.topic)
        real_kafka.produce(here.topic, [b"3"])
        await here.serve()
        await here.until_done()
        found = here.status()
        assert found is not None
        assert (found.started, found.repeated, found.received) == (3, 2, 5)


def reset(broker: Broker, group: str, topic: str) -> None:
    """`kafka-consumer-groups --reset-offsets --to-earliest`: a commit for a group without members."""
    from confluent_kafka import Consumer, TopicPartition

    tool = Consumer({**broker.settings, "group.id": group, "enable.auto.commit": False})
    try:
        tool.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    finally:
        tool.close()


async def test_nothing_waits_behind_a_transaction_that_was_read(home: Home, real_kafka: Broker) -> None:
    from confluent_kafka import Producer

    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy)
        producer = Producer({**real_kafka.settings, "transactional.id": here.topic})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(here.topic, b"1", partition=0)
        producer.commit_transaction()

        async def ended() -> bool:
            return here.ends() == [2, 0]

        await eventually_async(ended)
        await here.serve()
        await here.until_done()
        assert here.commits() == [2, 0]
