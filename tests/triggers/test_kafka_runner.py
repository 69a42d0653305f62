"""A Kafka trigger in its thread: its messages when it cannot begin, and its switch to another position."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from eventually import eventually_async
from triggers.test_judge import record, version

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import KafkaConnection
from treadle.orchestrator.environment.profile import Profile
from treadle.primitives.errors import CorruptError, StoreError, UsageError
from treadle.primitives.events import Record
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka import runner as module
from treadle.triggers.kafka.cluster_interface import BrokerUnreachable, ConsumerBroken, Listener
from treadle.triggers.kafka.machine_events import KafkaPartition, OutOfRange, Reached
from treadle.triggers.kafka.runner import KafkaRunner
from treadle.triggers.start_requests import RunStarted, StartOrder
from treadle.triggers.trigger_runner import TriggerSite


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (StoreError("the bucket does not answer", retryable=True), "failing"),
        (BrokerUnreachable("nobody is there"), "failing"),
        (ConsumerBroken("the client gives up"), "failing"),
        (StoreError("the bucket refuses"), "failed"),
        (UsageError("the topic does not exist"), "failed"),
        (CorruptError("somebody else wrote it"), "failed"),
        (KeyError("a defect"), "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_only_errors_that_a_user_must_mend_are_failures(error: Exception, state: str, tmp_path: Path) -> None:
    def history(_: str) -> Any:
        raise error

    unused: Any = None
    registry: Any = SimpleNamespace(history=history)
    site = TriggerSite(Home(tmp_path), Profile(), unused, unused, b"", registry, unused, "here-0")
    runner = KafkaRunner(site, "orders", "live")
    await runner.start()
    try:
        await eventually_async(lambda: bool(runner.status().error))
        assert runner.status().state == state
        assert str(error.args[0]) in runner.status().error
    finally:
        await runner.stop()
    assert runner.status().state == "stopped"


async def test_a_trigger_ends_while_every_thread_of_the_pool_is_busy(tmp_path: Path) -> None:
    def history(_: str) -> Any:
        raise BrokerUnreachable("nobody is there")

    unused: Any = None
    registry: Any = SimpleNamespace(history=history)
    site = TriggerSite(Home(tmp_path), Profile(), unused, unused, b"", registry, unused, "here-0")
    runner, over, loop = KafkaRunner(site, "orders", "live"), threading.Event(), asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        loop.set_default_executor(pool)
        busy = loop.run_in_executor(None, over.wait, 60)
        try:
            await runner.start()
            await asyncio.wait_for(runner.stop(), 30)
            assert not busy.done()
        finally:
            over.set()


# -- another version -----------------------------------------------------------------------------------------------


class Source:
    """A cluster with one partition. The test supplies the records."""

    made: ClassVar[list[Source]] = []

    trouble = None

    def __init__(self, _: Any, group: str, __: str, topics: Sequence[str], listener: Listener, **___: Any) -> None:
        self.group, self._listener = group, listener
        self._partition = KafkaPartition(topics[0], f"u{topics[0]}", 0)
        self._fresh, self.closed = True, False
        self.records: list[Record | OutOfRange | Reached] = []
        Source.made.append(self)

    def poll(self, most: int, seconds: float) -> list[Record | OutOfRange | Reached]:
        if self._fresh:
            self._fresh = False
            self._listener.placed(self._partition, 0)
        time.sleep(0.01)
        found, self.records = self.records, []
        return found

    def commit(self, offsets: Mapping[KafkaPartition, int]) -> None:
        raise AssertionError("nothing is done")

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        raise NotImplementedError

    def reading(self, partition: KafkaPartition, wanted: bool) -> None:
        raise NotImplementedError

    def lag(self) -> int | None:
        return 0

    def close(self) -> None:
        self._listener.revoked([self._partition])
        self.closed = True


class Graveyard:
    def __init__(self, *_: Any) -> None:
        pass

    def poll(self) -> None:
        pass

    def close(self, _: float) -> None:
        pass


@pytest.mark.parametrize("by", ["a record", "the service"])
async def test_a_trigger_that_moves_leaves_its_open_batch_and_judges_nothing_where_it_was(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Source, "made", [])
    monkeypatch.setattr(module, "ClusterSource", Source)
    monkeypatch.setattr(module, "Graveyard", Graveyard)
    batch = {"maxEvents": 2, "maxWait": "10m"}
    history = [version(1, {}, batch=batch)]
    connection = KafkaConnection.model_validate({"bootstrap.servers": "x:1"})
    profile = Profile(kafka={"prod": connection, "other": connection})
    store, unused = Store.open(tmp_path.as_uri()), cast(Any, None)
    registry: Any = SimpleNamespace(history=lambda _: list(history))
    site = TriggerSite(Home(tmp_path / "home"), profile, unused, store, b"k" * 32, registry, unused, "here-0")
    runner = KafkaRunner(site, "orders", "live")
    await runner.start()
    try:
        await eventually_async(lambda: len(Source.made) == 1)
        Source.made[0].records = [record(0)]
        await eventually_async(lambda: runner.status().lag == 1)
        history.append(version(2, {}, connection="other", batch=batch))
        if by == "a record":
            Source.made[0].records = [record(1)]
        else:
            await runner.update(history[-1], False)
        await eventually_async(lambda: len(Source.made) == 2)
        assert Source.made[0].closed
        assert Source.made[0].group != Source.made[1].group
        await eventually_async(lambda: runner.status().state == "running")
    finally:
        await runner.stop()
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
    assert runner.status().started == 0


async def test_a_service_that_begins_starts_nothing_while_the_one_before_has_runs_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "made", [])
    monkeypatch.setattr(module, "ClusterSource", Source)
    monkeypatch.setattr(module, "Graveyard", Graveyard)
    monkeypatch.setattr(module, "COUNT_EVERY", 0.02)
    starter = Starter()
    limited = version(1, {}, maxActive=1)
    profile = Profile(kafka={"prod": KafkaConnection.model_validate({"bootstrap.servers": "x:1"})})
    registry: Any = SimpleNamespace(history=lambda _: [limited])
    store, unused = Store.open(tmp_path.as_uri()), cast(Any, None)
    site = TriggerSite(Home(tmp_path / "home"), profile, unused, store, b"k" * 32, registry, starter, "here-0")
    runner = KafkaRunner(site, "orders", "live")
    await runner.update(limited, False)
    await runner.start()
    try:
        await eventually_async(lambda: len(Source.made) == 1)
        Source.made[0].records = [record(0)]
        await eventually_async(lambda: runner.status().lag == 1)
        assert runner.status().state == "failing"
        assert "nobody counts" in runner.status().error
        starter.open = 1
        await eventually_async(lambda: runner.status().active == 1)
        assert (runner.status().state, starter.started) == ("running", [])
        starter.open = 0
        await eventually_async(lambda: runner.status().started == 1)
    finally:
        await runner.stop()


class Starter:
    """A starter whose runs never end."""

    def __init__(self) -> None:
        self.open: int | None = None
        self.started: list[str] = []

    async def active(self, workflow: str, trigger: str) -> int:
        if self.open is None:
            raise BrokerUnreachable("nobody counts")
        return self.open

    async def start(self, order: StartOrder) -> RunStarted:
        self.started.append(order.run)
        return RunStarted(order.run, True)

    async def wait(self, run: str) -> None:
        await asyncio.Event().wait()
