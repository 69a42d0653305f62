"""The service with a real broker and a real Temporal server. No worker runs the runs, so all of them stay open."""

from __future__ import annotations

import asyncio

import pytest
from eventually import eventually_async
from kafka import Broker
from triggers.deployed import living_statuses
from triggers.stages import Stage, home, stage

from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError
from treadle.triggers.dead_letter_replay import replay_orders
from treadle.triggers.kafka import machine
from treadle.triggers.kafka.dead_letters import KafkaDeadLetter
from treadle.triggers.kafka.matching import lineage
from treadle.triggers.kafka.offsets import KafkaPositions, StoredMarks
from treadle.triggers.kafka.payloads import Payloads
from treadle.triggers.start_requests import RunStarted, Starter, StartOrder

__all__ = ["home"]


async def test_each_matching_record_starts_one_run_and_poison_becomes_letters(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        deployed = await asyncio.to_thread(here.deploy, filter="event.data.n > 0", schema={"required": ["id"]})
        good = [b'{"n": 1, "id": 1}', b'{"n": 0}', b'{"n": 2, "id": 2}']
        poison = [b"oops", None, b'{"n": 3}', b'{"m": 1}', b'"' + b"x" * (5 * 2**20) + b'"']
        real_kafka.produce(here.topic, [*good, *poison], keys=[b"k%d" % n for n in range(8)], headers={"trace": b"t1"})
        real_kafka.produce(here.topic, [b'{"n": 4, "id": 3}'], partition=1)
        await here.serve()
        await here.until_done()
        runs = await here.until_runs(3)
        prefix = f"{here.name}.live.{deployed.begins['live'][0].topic_id if deployed.begins else ''}"
        assert set(runs) == {f"{prefix}.0.0", f"{prefix}.0.2", f"{prefix}.1.0"}
        letters = {one.record.offset: one for one in await asyncio.to_thread(here.letters)}
        assert sorted(letters) == [3, 4, 5, 6, 7]
        assert [letters[offset].record.value for offset in (3, 4, 5, 6)] == poison[:4]
        assert all(one.record.headers == (("trace", b"t1"),) and one.record.key for one in letters.values())
        assert "no JSON" in letters[3].reason
        assert "tombstone" in letters[4].reason
        assert "'id' is a required property" in letters[5].reason
        assert "there is no event.data.n" in letters[6].reason
        assert letters[7].omitted  # the topic of letters has the default limit of topics
        assert "bytes; at most" in letters[7].reason
        await asyncio.to_thread(_check_replay, here, letters[5], letters[7])


def _check_replay(here: Stage, letter: KafkaDeadLetter, omitted: KafkaDeadLetter) -> None:
    """The next version accepts a record that the first one refused."""
    here.deploy()
    at = lineage(here.site.registry.history(here.name), "live")
    assert at is not None
    payloads = Payloads(here.site.store, here.site.key, lambda _: None)
    [order] = replay_orders(letter, at, payloads.value)
    assert order.run.endswith(f".0.{letter.record.offset}.r1")
    assert order.inputs["orders"]["kafka"]["copied"]  # the record may expire in its topic
    with pytest.raises(UsageError, match="does not hold the value"):
        replay_orders(omitted, at, payloads.value)


async def test_records_delivered_again_start_nothing_again(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy, batch={"maxEvents": 4, "maxWait": "1s"})
        real_kafka.produce(here.topic, [b"%d" % number for number in range(10)])
        await here.serve()
        await here.until_done()
        runs = await here.until_runs(3)
        await here.stop()
        at = lineage(here.site.registry.history(here.name), "live")
        assert at is not None
        positions = KafkaPositions(here.site.home, here.site.profile)
        marks = StoredMarks(here.site.store, here.site.key, here.group())

        async def back() -> bool:
            """The group must first drop its member."""
            try:
                await asyncio.to_thread(positions.seek, at, here.group(), marks, "earliest")
            except UsageError:
                return False
            return True

        await eventually_async(back)
        assert here.commits() == [0, 0]
        real_kafka.produce(here.topic, [b"%d" % number for number in range(10, 12)])
        await here.serve()
        await here.until_done()
        again = await here.until_runs(len(runs) + 1)
        assert {run: again[run] for run in runs} == runs
        spans = sorted((int(run.rsplit(".", 1)[1]), memo["end"], memo["count"]) for run, memo in again.items())
        assert [start for start, _, _ in spans] == [0, *(end for _, end, _ in spans[:-1])]
        assert spans[-1][1] == 12
        assert all(end - start == count for start, end, count in spans)


class Silent:
    """A starter whose answers are lost. The run of the first record is started, the others' are not."""

    def __init__(self, starter: Starter) -> None:
        self._starter, self.asked = starter, list[str]()

    async def start(self, order: StartOrder) -> RunStarted:
        if order.run.endswith(".0.0"):
            await self._starter.start(order)
        self.asked.append(order.run)
        await asyncio.Event().wait()
        raise AssertionError

    async def active(self, workflow: str, trigger: str) -> int:
        return await self._starter.active(workflow, trigger)

    async def wait(self, run: str) -> None:
        await self._starter.wait(run)


async def test_nothing_is_committed_before_its_start_is_acknowledged(
    home: Home, real_kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "HANDOVER", 0.1)
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy, filter="event.data.n > 0")
        real_kafka.produce(here.topic, [b'{"n": 1}', b'{"n": 2}'])
        silent = Silent(here.site.starter)
        await here.serve(silent)

        async def asked() -> bool:
            return len(silent.asked) == 2

        async def passed_over() -> bool:
            return here.commits()[1] == 1

        await eventually_async(asked)
        real_kafka.produce(here.topic, [b'{"n": 0}'], partition=1)
        await eventually_async(passed_over)
        assert here.commits() == [0, 1], "all partitions are committed in the same turn"
        await here.stop()
        assert here.commits() == [0, 1], "nor when it leaves"
        await here.serve()
        await here.until_done()
        assert sorted(run.rsplit(".", 2)[1:] for run in await here.until_runs(2)) == [["0", "0"], ["0", "1"]]


async def test_each_version_decides_on_its_own_records(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy, filter="event.data.a")
        real_kafka.produce(here.topic, [b'{"a": true, "b": false}', b'{"a": false, "b": true}'])
        await asyncio.to_thread(here.deploy, filter="event.data.b")
        real_kafka.produce(here.topic, [b'{"a": true, "b": false}', b'{"a": false, "b": true}'])
        await here.serve()
        await here.until_done()
        runs = await here.until_runs(2)
        assert sorted((run.rsplit(".", 1)[1], memo["version"]) for run, memo in runs.items()) == [("0", 1), ("3", 2)]


async def test_max_active_holds_back_waiting_records(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy, maxActive=1)
        real_kafka.produce(here.topic, [b"1", b"2", b"3"])
        await here.serve()
        order: list[str] = []
        for number in range(3):
            runs = await here.until_runs(number + 1)
            assert len(runs) == number + 1
            run = next(iter(set(runs) - set(order)))
            assert run.endswith(f".0.{number}")
            assert here.commits()[0] <= number
            order.append(run)
            await here.site.client.get_workflow_handle(run).terminate()
        await here.until_done()
        statuses = await asyncio.to_thread(living_statuses, here.site.store, here.site.key)
        assert here.site.instance in statuses


async def test_paused_trigger_starts_nothing_and_an_unpaused_one_everything(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        await asyncio.to_thread(here.deploy)
        here.site.registry.pause(here.name, "live")
        await here.serve()

        async def paused() -> bool:
            status = here.status()
            return status is not None and status.state == "paused"

        await eventually_async(paused)
        real_kafka.produce(here.topic, [b"1", b"2"])
        await asyncio.sleep(1)
        assert await here.runs() == {}
        here.site.registry.unpause(here.name, "live")
        await here.until_done()
        assert len(await here.until_runs(2)) == 2
