"""Deployed schedules are schedules of Temporal. Each tick is one run, and overlap policies apply to it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from eventually import eventually_async
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleSpec, WorkflowExecutionStatus
from triggers.deployed import M, deploy, document

from treadle.client.testing.service import Service, service
from treadle.dsl.triggers import ScheduleTrigger
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile
from treadle.orchestrator.run_requests.run_views import RunView
from treadle.primitives.errors import UsageError
from treadle.triggers.registry.deployment import Deployment
from treadle.triggers.registry.registry import Registry
from treadle.triggers.schedules import runner as module
from treadle.triggers.schedules.desired_schedules import Wanted
from treadle.triggers.schedules.reconcile import Schedules
from treadle.triggers.schedules.runner import ScheduleRunner
from treadle.triggers.schedules.tick_workflow import TICK
from treadle.triggers.trigger_runner import TriggerSite

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = datetime(2026, 3, 1, tzinfo=UTC)
HOURLY = {"type": "schedule", "interval": "1h", "with": {"hour": "${{ trigger.time.hour }}"}}
INPUTS = {"hour": {"type": "integer"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with service(Home(tmp_path_factory.mktemp("home"))) as found:
        yield found


@pytest.fixture(scope="module")
def registry(here: Service) -> Registry:
    return Registry(here.site.store, here.site.key)


@pytest.fixture(scope="module")
def schedules(here: Service) -> Schedules:
    return Schedules(here.client, "treadle", here.site.key)


async def runs_of(here: Service, workflow: str) -> dict[str, RunView]:
    return {view.run: view async for view in here.runs.list_runs(100) if view.run.startswith(f"{workflow}.")}


async def ticks(here: Service, workflow: str) -> list[WorkflowExecutionStatus | None]:
    query = f"WorkflowType = '{TICK}' AND WorkflowId STARTS_WITH '{workflow}.'"
    return [execution.status async for execution in here.client.list_workflows(query)]


async def test_schedules_are_made_equal_to_the_registry(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    async def step() -> dict[str, str]:
        return {change.schedule: change.did for change in await schedules.reconcile(registry)}

    other = Schedule(action=ScheduleActionStartWorkflow("x", id="x", task_queue="q"), spec=ScheduleSpec())
    await here.client.create_schedule("not-ours", other)
    deploy(registry, document({"a": HOURLY, "b": {"type": "schedule", "cron": "0 2 * * *"}}, "kept"), tmp_path)
    assert await step() == {"kept.a": "created", "kept.b": "created"}
    assert await step() == {}
    registry.pause("kept", "a")
    assert await step() == {"kept.a": "paused"}
    assert (await schedules.view("kept", "a")).paused
    deploy(registry, document({"a": {**HOURLY, "interval": "2h"}}, "kept"), tmp_path)
    await eventually_async(lambda: _listed(here, "kept.b"))  # a listing lags
    assert await step() == {"kept.a": "updated", "kept.b": "deleted"}
    view = await schedules.view("kept", "a")
    assert view.paused, "an update keeps the pause"
    registry.unpause("kept", "a")
    assert await step() == {"kept.a": "unpaused"}
    view = await schedules.view("kept", "a")
    assert view.next[1] - view.next[0] == timedelta(hours=2)
    registry.undeploy("kept")
    assert await step() == {"kept.a": "deleted"}
    with pytest.raises(UsageError, match=r"no Schedule kept\.a"):
        await schedules.view("kept", "a")
    await here.client.get_schedule_handle("not-ours").delete()


async def _listed(here: Service, id_: str) -> bool:
    return id_ in [one.id async for one in await here.client.list_schedules()]


async def test_a_schedule_of_another_deployment_is_neither_taken_nor_deleted(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    theirs = Schedules(here.client, "treadle", b"another key")
    deploy(registry, document({"a": HOURLY}, "shared"), tmp_path)
    await theirs.reconcile(registry)
    with pytest.raises(UsageError, match=r"'shared\.a' that another deployment made"):
        await schedules.reconcile(registry)
    registry.undeploy("shared")
    await eventually_async(lambda: _listed(here, "shared.a"))
    assert await schedules.reconcile(registry) == []
    assert [change.did for change in await theirs.reconcile(registry)] == ["deleted"]


async def test_a_schedule_that_another_deployment_has_keeps_no_other_from_being_made(
    here: Service, registry: Registry, tmp_path: Path
) -> None:
    theirs = Schedules(here.client, "treadle", b"another key")
    deploy(registry, document({"a": HOURLY, "b": HOURLY}, "both"), tmp_path)
    registry.pause("both", "b")
    await theirs.keep(Wanted("both", "a", ScheduleTrigger.model_validate({"type": "schedule", "interval": "1h"})))
    unused: Any = None
    profile, store = Profile(), here.site.store
    home = Home(tmp_path / "home")
    site = TriggerSite(home, profile, here.client, store, here.site.key, registry, unused, "here-0")
    deployment = registry.deployment("both")
    runners = {name: ScheduleRunner(site, "both", name) for name in ("a", "b")}
    for name, runner in runners.items():
        await runner.update(deployment, name == "b")
        await runner.start()
    try:

        async def told() -> bool:
            return [runner.status().state for runner in runners.values()] == ["failing", "paused"]

        await eventually_async(told)
        assert "another deployment made" in runners["a"].status().error
    finally:
        for runner in runners.values():
            await runner.stop()
    assert [runner.status().state for runner in runners.values()] == ["stopped", "stopped"]
    registry.undeploy("both")
    for name in runners:
        await here.client.get_schedule_handle(f"both.{name}").delete()


async def test_taken_schedule_name_is_reported_after_all_others_are_made(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    theirs = Schedules(here.client, "treadle", b"another key")
    taken = Wanted("some", "a", ScheduleTrigger.model_validate({"type": "schedule", "interval": "1h"}))
    await theirs.keep(taken)
    deploy(registry, document({"a": HOURLY, "b": HOURLY}, "some"), tmp_path)
    with pytest.raises(UsageError, match=r"'some\.a' that another deployment made"):
        await schedules.reconcile(registry)
    assert len((await schedules.view("some", "b")).next) > 0
    registry.undeploy("some")
    for name in ("a", "b"):
        await here.client.get_schedule_handle(f"some.{name}").delete()


async def test_ticks_use_the_queue_of_the_profile_and_other_queues_are_left_alone(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    elsewhere = Schedules(here.client, "elsewhere", here.site.key)
    deploy(registry, document({"a": HOURLY}, "moved"), tmp_path)
    await elsewhere.reconcile(registry)
    assert [(one.schedule, one.did) for one in await schedules.reconcile(registry)] == [("moved.a", "updated")]
    description = await here.client.get_schedule_handle("moved.a").describe()
    assert isinstance(description.schedule.action, ScheduleActionStartWorkflow)
    assert description.schedule.action.task_queue == "treadle"
    assert await schedules.reconcile(registry) == []
    await eventually_async(lambda: _listed(here, "moved.a"))
    registry.undeploy("moved")
    assert await elsewhere.sweep(registry) == []
    assert [(one.schedule, one.did) for one in await schedules.sweep(registry)] == [("moved.a", "deleted")]


class Late(Registry):
    """A deployment happens while it answers."""

    meanwhile: Callable[[], None]

    def deployments(self) -> list[Deployment]:
        found = super().deployments()
        self.meanwhile()
        return found


async def test_concurrent_deployments_of_others_are_not_removed(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()

    async def made() -> None:
        await schedules.reconcile(registry)
        await eventually_async(lambda: _listed(here, "late.a"))

    def meanwhile() -> None:
        deploy(registry, document({"a": HOURLY}, "late"), tmp_path)
        asyncio.run_coroutine_threadsafe(made(), loop).result()

    slow = Late(here.site.store, here.site.key)
    slow.meanwhile = meanwhile
    assert await schedules.sweep(slow) == []
    assert len((await schedules.view("late", "a")).next) > 0
    registry.undeploy("late")
    await schedules.reconcile(registry)


async def test_schedules_of_triggers_that_are_gone_are_removed_while_a_service_runs(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_EVERY", 0.1)
    deploy(registry, document({"a": HOURLY}, "swept"), tmp_path)
    await schedules.reconcile(registry)
    sweeping = asyncio.create_task(module.keep_swept(schedules, registry))
    try:
        registry.undeploy("swept")

        async def gone() -> bool:
            try:
                await schedules.view("swept", "a")
            except UsageError:
                return True
            return False

        await eventually_async(gone)
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


async def test_backfill_makes_one_run_of_every_nominal_time(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    deploy(registry, document({"hourly": HOURLY}, "filled", inputs=INPUTS), tmp_path)
    registry.pause("filled", "hourly")
    await schedules.reconcile(registry)
    for expected_ticks in (4, 8):
        await schedules.backfill("filled", "hourly", START, START + timedelta(hours=3))

        async def over(count: int = expected_ticks) -> bool:
            return (await ticks(here, "filled")).count(WorkflowExecutionStatus.COMPLETED) == count

        await eventually_async(over)
    found = await runs_of(here, "filled")
    assert sorted(found) == [f"filled.hourly.20260301T0{hour}0000Z" for hour in range(4)]
    assert (await here.client.count_workflows("TreadleTrigger = 'filled.hourly'")).count == 4, "nothing ran again"
    for run in found:
        assert (await here.runs.end(run)).failure is None
        assert (await here.runs.submission(run)).inputs == {"hour": int(run[-7:-5])}
    registry.undeploy("filled")
    await schedules.reconcile(registry)


def waiting(name: str, flag: Path, overlap: str = "skip") -> dict[str, Any]:
    stages = {"each": {"type": "map", "input": {"items": [1]}, "uses": f"{M}:slowly", "with": {"flag": str(flag)}}}
    return document({"hourly": {"type": "schedule", "interval": "1h", "overlap": overlap}}, name, stages=stages)


@pytest.mark.parametrize(
    ("overlap", "first", "second"),
    [
        ("cancelOther", "cancelled", "running"),
        ("terminateOther", "terminated", "running"),
        ("allowAll", "running", "running"),
        ("bufferAll", "running", None),
        ("skip", "running", None),
    ],
)
async def test_overlap_means_the_run(
    here: Service,
    registry: Registry,
    schedules: Schedules,
    tmp_path: Path,
    overlap: Any,
    first: str,
    second: str | None,
) -> None:
    name, flag = f"w_{overlap}", tmp_path / "go"
    deploy(registry, waiting(name, flag), tmp_path)
    registry.pause(name, "hourly")
    await schedules.reconcile(registry)
    ids = [f"{name}.hourly.20260301T0{hour}0000Z" for hour in range(2)]

    async def states(*wanted: str | None) -> bool:
        found = await runs_of(here, name)
        return tuple(found[run].state if run in found else None for run in ids) == wanted

    await schedules.backfill(name, "hourly", START, START, overlap)
    await eventually_async(lambda: states("running", None))
    await schedules.backfill(name, "hourly", START + timedelta(hours=1), START + timedelta(hours=1), overlap)
    await eventually_async(lambda: states(first, second))
    flag.touch()
    if overlap == "bufferAll":
        await eventually_async(lambda: states("succeeded", "succeeded"))
    elif overlap == "skip":
        await eventually_async(lambda: states("succeeded", None))
        assert (await schedules.view(name, "hourly")).skipped == 1
    else:
        await eventually_async(lambda: states("succeeded" if first == "running" else first, "succeeded"))
    registry.undeploy(name)
    await schedules.reconcile(registry)


async def test_a_schedule_ticks_by_itself(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    deploy(
        registry, document({"often": {"type": "schedule", "interval": "1s", "overlap": "allowAll"}}, "often"), tmp_path
    )
    await schedules.reconcile(registry)

    async def two() -> dict[str, RunView] | None:
        found = await runs_of(here, "often")
        return found if len(found) >= 2 else None

    found = await eventually_async(two)
    times = sorted(datetime.strptime(run.rpartition(".")[2], "%Y%m%dT%H%M%S%z") for run in found)
    assert all(later - sooner >= timedelta(seconds=1) for sooner, later in itertools.pairwise(times))
    registry.undeploy("often")
    await schedules.reconcile(registry)


async def test_a_run_that_fails_is_not_a_failure_of_its_tick(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    stages = {
        "each": {
            "type": "map",
            "input": {"items": [1]},
            "uses": f"{M}:needs_flag",
            "with": {"flag": str(tmp_path / "never")},
            "retry": {"maximumAttempts": 1},
        }
    }
    deploy(registry, document({"hourly": {**HOURLY, "with": {}, "jitter": "20s"}}, "failing", stages=stages), tmp_path)
    await schedules.reconcile(registry)
    await schedules.backfill("failing", "hourly", START, START + timedelta(seconds=20))

    async def over() -> bool:
        return await ticks(here, "failing") == [WorkflowExecutionStatus.COMPLETED]

    await eventually_async(over)
    (view,) = (await runs_of(here, "failing")).values()
    assert view.state == "failed"
    assert view.run == "failing.hourly.20260301T000000Z", "the nominal time has no jitter"
    registry.undeploy("failing")
    await schedules.reconcile(registry)


async def test_a_tick_that_may_not_start_its_run_fails_with_the_reason(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    given = {**HOURLY, "with": {"source": "/etc/${{ trigger.time.date }}"}}
    deploy(registry, document({"hourly": given}, "refused", inputs={"source": {"type": "uri"}}), tmp_path)
    await schedules.reconcile(registry)
    await schedules.backfill("refused", "hourly", START, START)

    async def over() -> bool:
        return await ticks(here, "refused") == [WorkflowExecutionStatus.FAILED]

    await eventually_async(over)
    assert await runs_of(here, "refused") == {}
    registry.undeploy("refused")
    await schedules.reconcile(registry)


async def test_tick_of_an_undeployed_workflow_starts_no_run(
    here: Service, registry: Registry, schedules: Schedules, tmp_path: Path
) -> None:
    deploy(registry, document({"hourly": HOURLY}, "gone", inputs=INPUTS), tmp_path)
    await schedules.reconcile(registry)
    registry.undeploy("gone")
    await schedules.backfill("gone", "hourly", START, START)

    async def over() -> bool:
        return await ticks(here, "gone") == [WorkflowExecutionStatus.COMPLETED]

    await eventually_async(over)
    assert await runs_of(here, "gone") == {}
    await schedules.reconcile(registry)
