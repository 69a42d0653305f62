"""The service: the runners that it starts, changes and ends, its status, and connections of the profile."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from triggers.deployed import deploy, document, living_statuses

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import KafkaConnection, kafka_settings
from treadle.orchestrator.environment.profile import Profile
from treadle.primitives.errors import CorruptError, StoreError, UsageError
from treadle.primitives.stores.store import Store
from treadle.triggers import service as module
from treadle.triggers.registry import registry
from treadle.triggers.registry.deployment import Deployment
from treadle.triggers.registry.registry import Registry
from treadle.triggers.service import TriggerService, instance
from treadle.triggers.status_store import write_statuses
from treadle.triggers.trigger_runner import TriggerSite, TriggerStatus

KEY = bytes(32)
HOOK = {"type": "webhook", "secret": "s"}


class Runner:
    """Records its calls. Runners called `bad` and `odd` cannot start, `broken` ones do not end in order, and `moody`
    ones refuse version 2."""

    made: ClassVar[dict[str, Runner]] = {}

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        self.trigger, self.log, self.version = trigger, list[str](), 0
        Runner.made[f"{workflow}.{trigger}"] = self

    async def start(self) -> None:
        if self.trigger == "bad":
            raise UsageError("it cannot be", "Mend it.")
        if self.trigger == "odd":
            raise KeyError("a defect")
        self.log.append("start")

    async def update(self, deployment: Deployment, paused: bool) -> None:
        if self.trigger == "moody" and deployment.version == 2:
            raise UsageError("its schema cannot be", "Mend it.")
        self.version = deployment.version
        self.log.append(f"update {deployment.version}{' paused' if paused else ''}")

    async def stop(self) -> None:
        self.log.append("stop")
        if self.trigger == "broken":
            raise RuntimeError("in disorder")

    def status(self) -> TriggerStatus:
        return TriggerStatus("w", self.trigger, "webhook", self.version, "running", time=time.time())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TriggerSite:
    monkeypatch.setattr(module, "_make", lambda _, *about: Runner(*about))
    monkeypatch.setattr(Runner, "made", {})
    monkeypatch.setattr(module, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(module, "TELL_EVERY", 0.0)
    store = Store.open(f"file://{tmp_path}/store")
    unused: Any = None
    home = Home(tmp_path / "home")
    return TriggerSite(home, Profile(), unused, store, KEY, Registry(store, KEY), unused, "here-0")


async def heard(trigger: str, text: str) -> None:
    async with asyncio.timeout(30):
        while trigger not in Runner.made or text not in Runner.made[trigger].log:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_deployed_triggers_run_change_rest_and_end(site: TriggerSite, tmp_path: Path) -> None:
    known = site.registry
    deploy(known, document({"a": HOOK, "bad": HOOK, "broken": HOOK}, "w"), tmp_path)
    service = TriggerService(site)
    task = asyncio.create_task(service.run())
    await heard("w.a", "start")
    await heard("w.broken", "start")
    known.pause("w", "a")
    await heard("w.a", "update 1 paused")
    failed = next(one for one in service.statuses() if one.trigger == "bad")
    assert (failed.state, "it cannot be" in failed.error) == ("failed", True)
    deploy(known, document({"a": {**HOOK, "maxActive": 3}}, "w"), tmp_path)
    await heard("w.a", "update 2 paused")
    await heard("w.broken", "stop")
    assert [one.trigger for one in service.statuses()] == ["a"]
    known.undeploy("w")
    await heard("w.a", "stop")
    deploy(known, document({"later": HOOK}, "v"), tmp_path)
    await heard("v.later", "start")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert Runner.made["v.later"].log[-1] == "stop"
    assert living_statuses(site.store, site.key) == {}


async def test_a_trigger_that_is_set_aside_is_left_and_taken_up_again(site: TriggerSite, tmp_path: Path) -> None:
    deploy(site.registry, document({"a": HOOK, "b": HOOK}, "w"), tmp_path)
    task = asyncio.create_task(TriggerService(site).run())
    await heard("w.a", "start")
    await heard("w.b", "start")
    first, other = Runner.made["w.a"], Runner.made["w.b"]
    with site.registry.set_aside("w", "a"):
        await heard("w.a", "stop")
        assert site.registry.aside() == {("w", "a")}
    async with asyncio.timeout(30):
        while Runner.made["w.a"] is first:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await heard("w.a", "start")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert other.log.count("stop") == 1
    assert site.registry.aside() == set()


def test_a_trigger_is_not_set_aside_for_ever(site: TriggerSite, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.registry.set_aside("w", "a"):
        monkeypatch.setattr(registry, "ASIDE_LASTS", 0.0)
        assert site.registry.aside() == set()


async def test_a_new_trigger_is_reported_at_the_next_look(
    site: TriggerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TELL_EVERY", math.inf)
    task = asyncio.create_task(TriggerService(site).run())
    for names in (["a"], ["a", "b"]):
        deploy(site.registry, document(dict.fromkeys(names, HOOK), "w"), tmp_path)
        await reported(site, names)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def reported(site: TriggerSite, names: list[str]) -> None:
    def found() -> list[str]:
        return sorted(one.trigger for said in living_statuses(site.store, KEY).values() for one in said)

    async with asyncio.timeout(30):
        while found() != names:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_report_under_way_does_not_outlive_the_service(
    site: TriggerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def slowly(*about: Any) -> None:
        begun.set()
        go.wait(60)
        write_statuses(*about)
        done.set()

    monkeypatch.setattr(module, "write_statuses", slowly)
    deploy(site.registry, document({"a": HOOK}, "w"), tmp_path)
    task = asyncio.create_task(TriggerService(site).run())
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await heard("w.a", "stop")
    go.set()
    await asyncio.gather(task, asyncio.to_thread(done.wait, 60), return_exceptions=True)
    assert living_statuses(site.store, site.key) == {}


async def test_a_defect_ends_neither_the_service_nor_other_triggers(
    site: TriggerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(site.registry, document({"odd": HOOK, "well": HOOK}, "w"), tmp_path)
    looks, look = itertools.count(), TriggerService._look  # private: the test counts and delays the steps

    def sometimes(service: TriggerService) -> Any:
        if next(looks) % 2 == 0:
            raise KeyError("a defect of the look")
        return look(service)

    monkeypatch.setattr(TriggerService, "_look", sometimes)
    service = TriggerService(site)
    task = asyncio.create_task(service.run())
    await heard("w.well", "start")
    assert {one.trigger: one.state for one in service.statuses()} == {"odd": "failed", "well": "running"}
    assert next(one.error for one in service.statuses() if one.trigger == "odd") == "KeyError: 'a defect'"
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_unusable_version_of_a_trigger_is_reported_until_the_next_one(site: TriggerSite, tmp_path: Path) -> None:
    service = TriggerService(site)
    task = asyncio.create_task(service.run())
    for version, state in ((1, "running"), (2, "failed"), (3, "running")):
        deploy(site.registry, document({"moody": {**HOOK, "maxActive": version}}, "w"), tmp_path)
        async with asyncio.timeout(60):
            while [(one.version, one.state) for one in service.statuses()] != [(version, state)]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert Runner.made["w.moody"].log.count("start") == 1, "it is the same runner all the while"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_service_ends_in_order_when_the_store_does_not_answer(
    site: TriggerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(site.registry, document({"a": HOOK, "bad": HOOK}, "w"), tmp_path)
    service = TriggerService(site)
    task = asyncio.create_task(service.run())
    await heard("w.a", "start")

    def away(*_: Any) -> None:
        raise StoreError("the bucket does not answer", retryable=True)

    monkeypatch.setattr(module, "write_statuses", away)
    monkeypatch.setattr(type(site.store), "delete", away)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Runner.made["w.a"].log[-1] == "stop"
    assert service.statuses() == [], "nor those that never began"


async def test_a_trigger_that_hears_of_objects_in_another_way_gets_another_runner(
    site: TriggerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, Runner]] = []

    def make(kind: str, *about: Any) -> Runner:
        assert [one.log[-1] for _, one in made] == ["stop"] * len(made)
        made.append((kind, Runner(*about)))
        return made[-1][1]

    monkeypatch.setattr(module, "_make", make)
    task = asyncio.create_task(TriggerService(site).run())
    told = {"connection": "c", "topics": ["t"]}
    ways = {"poll": {"uri": tmp_path.as_uri()}, "webhook": {"secret": "s"}, "kafka": told}
    for kind, way in ways.items():
        deploy(site.registry, document({"files": {"type": "object", kind: way}}, "w"), tmp_path)
        async with asyncio.timeout(60):
            while not made or made[-1][0] != kind or "start" not in made[-1][1].log:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [kind for kind, _ in made] == list(ways)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_statuses_of_others_are_read_while_they_are_fresh(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}/store")
    fresh = TriggerStatus("w", "a", "kafka", 1, "running", 5, time=time.time())
    write_statuses(store, KEY, "one", [fresh])
    write_statuses(store, KEY, "two", [TriggerStatus("w", "a", "kafka", 1, "running", time=time.time() - 3600)])
    assert living_statuses(store, KEY) == {"one": [fresh]}
    with pytest.raises(CorruptError):
        living_statuses(store, bytes([1]) * 32)


def test_processes_of_a_home_have_names_that_come_back(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with instance(home) as first:
        with instance(home) as second:
            assert first != second
        with instance(home) as again:
            assert again == second
    with instance(home) as next_one, instance(Home(tmp_path / "other")) as other:
        assert next_one == first
        assert other != first


CONNECTION = """
bootstrap.servers = "kafka.lab:9093"
security.protocol = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
secrets.sasl.password = "kafka-orders"
"""


def test_connection_has_librdkafkas_names_and_its_secrets_by_name() -> None:
    found = KafkaConnection.model_validate(tomllib.loads(CONNECTION))
    assert "pass" not in repr(found.settings)
    assert kafka_settings({"orders": found}, "orders", lambda name: f"value of {name}") == {
        "bootstrap.servers": "kafka.lab:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.password": "value of kafka-orders",
    }
    with pytest.raises(UsageError, match="no Kafka connection 'other'"):
        kafka_settings({"orders": found}, "other", str)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('sasl.password = "secret"', "is a secret"),
        ("enable.auto.commit = true", "is set by treadle"),
        ('group.id = "mine"', "is set by treadle"),
        ('plugin.library.paths = "x.so"', "is set by treadle"),
        ("[nothing]", "bootstrap.servers"),
    ],
)
def test_connection_refuses_invalid_settings(table: str, reason: str) -> None:
    given = tomllib.loads(table)
    if reason != "bootstrap.servers":
        given = {**given, "bootstrap.servers": "b:9092"}
    with pytest.raises(ValidationError, match=reason):
        KafkaConnection.model_validate(given)
