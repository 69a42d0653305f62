"""A polled prefix: each object starts one run, even when the service dies between a start and its record."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from eventually import PATIENCE, eventually_async
from triggers.deployed import deploy, document

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile
from treadle.orchestrator.run_store.uri_policy import check_allowed
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.store import Store
from treadle.triggers import polling
from treadle.triggers.objects import poller as module
from treadle.triggers.objects.poller import Poller
from treadle.triggers.objects.seen_objects import ObjectRecords, born
from treadle.triggers.registry.registry import Registry
from treadle.triggers.start_requests import RunStarted, StartOrder
from treadle.triggers.trigger_runner import TriggerSite

KEY = b"k" * 32
INPUTS = {"source": {"type": "uri", "required": True}}


class Starts:
    """A Starter that outlives services, and fails for a given number of starts."""

    def __init__(self) -> None:
        self.orders: list[StartOrder] = []
        self.asked = 0
        self.away = 0
        self.at_once = self.most_at_once = 0
        self.over = asyncio.Event()

    async def start(self, order: StartOrder) -> RunStarted:
        self.asked += 1
        if self.away:
            self.away -= 1
            raise Unreachable("nobody is there")
        new = order.run not in self.runs
        if new:
            self.orders.append(order)
        return RunStarted(order.run, new)

    async def active(self, workflow: str, trigger: str) -> int:
        return 0

    async def wait(self, run: str) -> None:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await self.over.wait()
        self.at_once -= 1

    @property
    def runs(self) -> set[str]:
        return {order.run for order in self.orders}

    @property
    def names(self) -> list[str]:
        return [order.inputs["source"].rsplit("/", 1)[1] for order in self.orders]


class Checked(Starts):
    """Refuses like the real Starter."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    async def start(self, order: StartOrder) -> RunStarted:
        submission = self._registry.deployment(order.workflow, order.version).submission(order.run, order.inputs)
        check_allowed(None, submission)
        return await super().start(order)


class Slow(Starts):
    """Starts the run of one object only once `answers` is set."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name, self.answers = name, asyncio.Event()

    async def start(self, order: StartOrder) -> RunStarted:
        if order.inputs["source"].endswith(f"/{self._name}"):
            await self.answers.wait()
        return await super().start(order)


class Place:
    """A polled folder, and services that poll it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.base = folder / "lake", folder
        self.folder.mkdir()
        home = Home(folder / "home")
        store = Store.open(home.store.as_uri())
        self.registry = Registry(store, KEY)
        self.starts = Starts()
        nobody = cast(Any, None)
        self.site = TriggerSite(home, Profile(), nobody, store, KEY, self.registry, self.starts, "test")
        self.records = ObjectRecords(store, KEY, "orders", "files")

    def put(self, name: str, text: str = "x", modified: float | None = None) -> None:
        (self.folder / name).write_text(text)
        if modified is not None:
            os.utime(self.folder / name, (modified, modified))

    def deploy(self, **settings: Any) -> None:
        poll = {"uri": self.folder.as_uri(), "every": "1s"}
        given = {"type": "object", "poll": poll, "with": {"source": "${{ event.data.uri }}"}, **settings}
        self.deployment = deploy(self.registry, document({"files": given}, inputs=INPUTS), self.base)

    async def service(self, paused: bool = False) -> Poller:
        made = Poller(self.site, "orders", "files")
        await made.update(self.deployment, paused)
        await made.start()
        return made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(module, "WAIT", 0.05)
    monkeypatch.setattr(polling, "AGAIN", 0.05)
    return Place(tmp_path)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls follow each other at once."""
    monkeypatch.setattr(Poller, "every", 0.02)


@pytest.mark.usefixtures("quick")
async def test_objects_present_at_the_deployment_count_only_if_requested(place: Place) -> None:
    place.put("old", modified=time.time() - 10)
    place.deploy()
    place.put("new", modified=time.time() + 1)
    service = await place.service()
    await eventually_async(lambda: len(place.starts.orders) == 1)
    place.put("newer")
    place.put("dated back", modified=time.time() - 1000)
    await eventually_async(lambda: len(place.starts.orders) == 3)
    await service.stop()
    assert sorted(place.starts.names) == ["dated%20back", "new", "newer"]
    place.deploy(startFrom="earliest", description="another version looks at the same prefix")
    service = await place.service()
    place.put("last")
    await eventually_async(lambda: "last" in place.starts.names)
    await service.stop()
    assert "old" not in place.starts.names, "the first look was the first version's"


@pytest.mark.usefixtures("quick")
async def test_backdated_object_starts_a_run_when_the_folder_was_empty(place: Place) -> None:
    place.deploy()
    first = await place.service()
    await eventually_async(lambda: first.status().state == "running")
    await first.stop()
    place.put("dated back", modified=1e9)
    second = await place.service()
    await eventually_async(lambda: second.status().state == "running")
    assert place.starts.names == ["dated%20back"]
    await second.stop()


@pytest.mark.usefixtures("quick")
async def test_a_look_at_the_old_prefix_says_nothing_of_the_new_one(place: Place) -> None:
    """The service receives a new version some seconds late."""
    deeper = place.folder / "deeper"
    deeper.mkdir()
    (deeper / "old").write_text("x")
    os.utime(deeper / "old", (1e9, 1e9))
    place.deploy()
    service = await place.service()
    heard = place.deployment
    place.deploy(poll={"uri": deeper.as_uri(), "every": "1s"})
    place.put("meanwhile")
    await eventually_async(lambda: "meanwhile" in place.starts.names)
    assert place.deployment is not heard
    await service.update(place.deployment, False)
    place.put("deeper/new")
    await eventually_async(lambda: "new" in place.starts.names)
    assert "old" not in place.starts.names
    await service.stop()


@pytest.mark.usefixtures("quick")
async def test_overwritten_object_starts_a_new_run_and_an_unchanged_one_does_not(place: Place) -> None:
    place.deploy(startFrom="earliest")
    place.put("stays", modified=1e9)
    place.put("a", "1", modified=1e9)
    service = await place.service()
    await eventually_async(lambda: len(place.starts.orders) == 2)
    place.put("a", "22", modified=1e9)
    await eventually_async(lambda: len(place.starts.orders) == 3)
    (place.folder / "a").unlink()
    # private: seen objects have no other sign
    await eventually_async(lambda: service._seen is not None and len(service._seen) == 1)
    place.put("a", "333", modified=1e9)
    await eventually_async(lambda: len(place.starts.orders) == 4)
    asked = place.starts.asked
    await asyncio.sleep(0.2)
    assert place.starts.asked == asked
    await service.stop()


async def test_a_service_that_dies_before_it_remembers_starts_nothing_twice(place: Place) -> None:
    place.deploy(startFrom="earliest")
    for number in range(45):
        place.put(f"{number:02}")
    with pytest.MonkeyPatch.context() as patch:  # dies: the listing is never saved
        patch.setattr(ObjectRecords, "save", lambda *_: None)
        first = await place.service()
        await eventually_async(lambda: len(place.starts.orders) >= 20)
        await first.stop()
    second = await place.service()
    await eventually_async(lambda: second.status().state == "running")
    assert sorted(place.starts.names) == [f"{number:02}" for number in range(45)]
    assert place.starts.asked > 45, "they were asked for again, and refused"
    await second.stop()
    asked = place.starts.asked
    third = await place.service()
    await eventually_async(lambda: third.status().state == "running")
    assert place.starts.asked == asked, "what is on record is not even asked for"
    await third.stop()


async def test_seen_objects_are_saved_after_the_start_and_never_before(place: Place) -> None:
    place.deploy(startFrom="earliest")
    place.put("a")
    place.starts.away = 3
    saved: list[int] = []
    save = ObjectRecords.save

    def spying(self: ObjectRecords, version: int, seen: Any) -> None:
        saved.append(len(seen))
        assert len(seen) <= len(place.starts.orders)
        save(self, version, seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectRecords, "save", spying)
        service = await place.service()
        await eventually_async(lambda: service.status().state == "failing")
        await eventually_async(lambda: service.status().state == "running")
        await service.stop()
    assert len(place.starts.orders) == 1
    assert saved[-1] == 1


async def test_two_services_start_each_object_once(place: Place) -> None:
    place.deploy(startFrom="earliest")
    for number in range(30):
        place.put(str(number))
    services = [await place.service(), await place.service()]
    await eventually_async(lambda: all(one.status().state == "running" for one in services))
    assert sorted(map(int, place.starts.names)) == list(range(30))
    for one in services:
        await one.stop()


async def test_stop_ends_a_service_that_was_paused_in_the_same_moment(place: Place) -> None:
    place.deploy()
    service = await place.service()
    await eventually_async(lambda: service.status().state == "running")
    await service.update(place.deployment, True)
    stopping = asyncio.create_task(service.stop())
    done, _ = await asyncio.wait({stopping}, timeout=PATIENCE)
    assert done, "stop waits for ever"
    assert service.status().state == "stopped"


async def test_no_more_runs_are_open_than_the_trigger_may_have(place: Place) -> None:
    place.deploy(startFrom="earliest", maxActive=2)
    for number in range(5):
        place.put(str(number), modified=1e9 + number)
    service = await place.service()
    await eventually_async(lambda: len(place.starts.orders) == 2)
    assert service.status().lag == 3
    await asyncio.sleep(0.2)
    assert len(place.starts.orders) == 2
    place.starts.over.set()
    await eventually_async(lambda: len(place.starts.orders) == 5)
    assert place.starts.names == ["0", "1", "2", "3", "4"], "oldest first"
    assert place.starts.most_at_once <= 2
    await service.stop()


async def test_lag_excludes_started_objects_while_another_start_is_slow(place: Place) -> None:
    place.deploy(startFrom="earliest")
    for number in range(5):
        place.put(str(number), modified=1e9 + number)
    slow = place.starts = Slow("2")
    object.__setattr__(place.site, "starter", slow)
    service = await place.service()
    await eventually_async(lambda: service.status().started == 4)
    assert service.status().lag == 1
    slow.answers.set()
    await eventually_async(lambda: service.status().started == 5)
    assert service.status().lag == 0
    await service.stop()


async def test_an_object_that_can_start_no_run_is_on_record_and_stops_no_other(place: Place) -> None:
    place.starts = Checked(place.registry)
    object.__setattr__(place.site, "starter", place.starts)
    place.deploy(startFrom="earliest", filter="event.data.key != '' && event.data.size / (event.data.size - 3) > -99")
    place.put("good", "12345")
    place.put("bad", "123")
    service = await place.service()
    await eventually_async(lambda: service.status().state == "running")
    assert place.starts.names == ["good"]
    (refused,) = place.records.refused()
    assert refused.event.subject is not None
    assert refused.event.subject.endswith("/bad")
    assert "filter" in refused.reason
    assert service.status().dead == 1
    await service.stop()


async def test_a_file_that_no_uri_names_is_on_record_and_stops_no_other(place: Place) -> None:
    place.deploy(startFrom="earliest")
    for name in (b"a", b"b\xff", b"c"):
        (place.folder / os.fsdecode(name)).write_text("x")
    service = await place.service()
    await eventually_async(lambda: service.status().state in ("running", "failed"))
    await service.stop()
    assert sorted(place.starts.names) == ["a", "c"]
    (refused,) = place.records.refused()
    assert (refused.event.data["key"], refused.reason) == (f"{place.folder}/b\\udcff", "its name is not UTF-8")


async def test_a_paused_trigger_looks_at_nothing_and_catches_up(place: Place) -> None:
    place.deploy(startFrom="earliest")
    place.put("a")
    service = await place.service(paused=True)
    await eventually_async(lambda: service.status().state == "paused")
    assert place.starts.asked == 0
    await service.update(place.deployment, False)
    await eventually_async(lambda: len(place.starts.orders) == 1)
    await service.stop()


class Interrupted(Starts):
    """A user pauses the trigger while its first objects start."""

    def __init__(self) -> None:
        super().__init__()
        self.pause: Callable[[], Awaitable[None]] | None = None

    async def start(self, order: StartOrder) -> RunStarted:
        if self.pause is not None:
            pause, self.pause = self.pause, None
            await pause()
        return await super().start(order)


async def test_a_pause_does_not_wait_for_all_that_was_found(place: Place) -> None:
    starts = Interrupted()
    object.__setattr__(place.site, "starter", starts)
    place.deploy(startFrom="earliest")
    for number in range(3 * module.AT_ONCE):
        place.put(str(number))
    service = Poller(place.site, "orders", "files")
    starts.pause = lambda: service.update(place.deployment, True)
    await service.update(place.deployment, False)
    await service.start()
    await eventually_async(lambda: service.status().state == "paused")
    assert starts.asked == module.AT_ONCE
    await service.update(place.deployment, False)
    await eventually_async(lambda: len(starts.orders) == 3 * module.AT_ONCE)
    assert starts.asked == 3 * module.AT_ONCE, "each once"
    await service.stop()


async def test_a_listing_that_fails_forgets_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.deploy(startFrom="earliest")
    place.put("a")
    service = await place.service()
    await eventually_async(lambda: len(place.starts.orders) == 1)

    def broken(_: str) -> Any:
        raise StoreError("the bucket does not answer", retryable=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_listing", broken)
        await eventually_async(lambda: service.status().state == "failing")
        assert "does not answer" in service.status().error
    await eventually_async(lambda: service.status().state == "running")
    assert place.starts.asked == 1
    await service.stop()


async def test_a_store_that_is_slow_keeps_no_other_trigger_waiting(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_: str) -> list[Any]:
        loop.call_soon_threadsafe(asked.set)
        answers.wait(60)
        return []

    monkeypatch.setattr(module, "_listing", slow)
    with ThreadPoolExecutor(1) as pool:
        loop.set_default_executor(pool)
        place.deploy()
        service = await place.service()
        await asked.wait()
        assert await asyncio.wait_for(asyncio.to_thread(int), 30) == 0
        answers.set()
        await service.stop()


def test_a_changed_prefix_is_another_first_look(place: Place) -> None:
    place.deploy()
    place.deploy(description="same prefix")
    assert born(place.registry.history("orders"), "files").version == 1
    place.deploy(poll={"uri": f"{place.folder.as_uri()}/deeper"})
    assert born(place.registry.history("orders"), "files").version == 3
    place.registry.undeploy("orders")
    place.deploy(poll={"uri": f"{place.folder.as_uri()}/deeper"})
    assert born(place.registry.history("orders"), "files").version == 5
