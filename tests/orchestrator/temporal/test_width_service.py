"""Task groups through Temporal: few events, fair to other runs, steered like any other stage, displayed as one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually_async
from orchestrator.record_histories import TESTS, mapped, spec
from orchestrator.temporal.test_history_size import bound, events
from temporalio import workflow
from temporalio.common import WorkflowIDConflictPolicy

import treadle.orchestrator.temporal.workflow as temporal_workflow
from treadle.client.progress import Painter, StageView
from treadle.client.testing.service import Service
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, read
from treadle.orchestrator.plan.plan import Plan
from treadle.orchestrator.planner import task_groups
from treadle.orchestrator.protocol import messages
from treadle.orchestrator.protocol.messages import ParentSteering

pytestmark = pytest.mark.asyncio(loop_scope="module")
SIZE = 50
ONE_BY_ONE = {"maxItems": 1}


@pytest.fixture(scope="module", autouse=True)
def small_groups() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_groups, "GROUP_TASKS", SIZE)
        yield


def numbers(count: int, function: str = "same", **arguments: Any) -> dict[str, Any]:
    return mapped({"range": count}, function, batch=ONE_BY_ONE, **{"with": arguments})


async def stage(here: Service, run: str, node: str) -> StageView:
    """The stage in the form of `show` and `watch`."""
    seen = Painter(here.runs.files(run), here.runs.files).stages(await here.runs.view(run))
    return next((one for one in seen if one.node == node), StageView(node, (node,), "segment", "waiting"))


async def test_history_has_six_events_for_each_group(here: Service, tmp_path: Path) -> None:
    second = mapped("first", retry={"maximumAttempts": 2})
    third = mapped("second", retry={"maximumAttempts": 3})
    await here.submit(spec(first=numbers(500), second=second, third=third), "events", tmp_path, TESTS)
    assert (await here.runs.end("events")).failure is None
    found = await events(here, "events")
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] in (32, 33), "the first of 3 * (10 + 1) is local if it is short"
    assert sum(found.values()) <= bound(found, segments=3, groups=30)


async def test_width_that_shows_late_costs_one_more_activity(here: Service, tmp_path: Path) -> None:
    document = spec(fat=mapped({"range": 10}, "spread", flat=True), thin=mapped("fat", batch=ONE_BY_ONE))
    await here.submit(document, "late", tmp_path, TESTS)
    assert (await here.runs.end("late")).failure is None
    found = await events(here, "late")
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] in (5, 6), "the first of 1 + 4 + 1 is local if it is short"


async def test_a_history_that_gets_long_is_cut_between_groups(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporal_workflow, "is_long", lambda: workflow.info().get_current_history_length() > 45)
    await here.submit(spec(only=numbers(700)), "cut", tmp_path, TESTS)
    assert (await here.runs.end("cut")).failure is None
    found = await events(here, "cut")
    assert sum(found.values()) < 45 + 6 * 8, "of the last piece"
    manifest = here.runs.files("cut").manifest("only")
    assert manifest is not None
    assert [outcome.partition for outcome in manifest.outcomes] == list(range(700))
    assert {outcome.attempt for outcome in manifest.outcomes} == {1}


async def test_limits_that_were_set_before_a_history_was_cut_hold_nothing_up(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resumed run begins with them, and so does a run that is limited before it is planned."""
    monkeypatch.setattr(messages, "RunStart", partial(messages.RunStart, limits={"first": 1, "second": 2}))
    await here.submit(spec(first=numbers(5), second=mapped("first", timeout="1m")), "limited", tmp_path, TESTS)
    async with asyncio.timeout(60):
        assert (await here.runs.end("limited")).failure is None
    found = await events(here, "limited")
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] <= 2, "none was begun without its limit"


async def test_a_run_that_is_paused_before_it_begins_can_go_on(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, policy = here.client.start_workflow, WorkflowIDConflictPolicy.USE_EXISTING
    signal = {"start_signal": messages.STEER, "start_signal_args": [ParentSteering("pause", 1, 1)]}

    async def paused(*what: Any, **how: Any) -> Any:
        return await begin(*what, **how | signal | {"id_conflict_policy": policy})

    monkeypatch.setattr(here.client, "start_workflow", paused)
    await here.submit(spec(only=numbers(5)), "early", tmp_path, TESTS)
    await eventually_async(lambda: asyncio.to_thread(here.runs.files("early").find, Plan, "plan"))
    await here.runs.steer("early", "unpause")
    async with asyncio.timeout(60):
        assert (await here.runs.end("early")).failure is None


async def test_a_wide_run_does_not_keep_others_waiting(here: Service, tmp_path: Path) -> None:
    """A narrow run gets every other slot at once, a wide one with the next group."""
    await here.submit(spec(only=numbers(3000, "takes", seconds=0.01)), "greedy", tmp_path, TESTS)
    await eventually_async(lambda: _committed(here, "greedy", 20))
    await here.submit(spec(only=numbers(20, "takes", seconds=0.01)), "narrow", tmp_path, TESTS)
    await here.submit(spec(only=numbers(2 * SIZE, "takes", seconds=0.01)), "wide", tmp_path, TESTS)
    assert (await here.runs.end("narrow")).failure is None
    assert (await here.runs.end("wide")).failure is None
    view = await here.runs.view("greedy")
    assert view.open
    await here.runs.cancel("greedy")
    await here.runs.end("greedy")


async def _committed(here: Service, run: str, least: int) -> bool:
    return (await stage(here, run, "only")).committed >= least


def on_record(here: Service, run: str) -> int:
    """Commits in the ledgers of all groups."""
    files = here.runs.files(run)
    records = [record for chain in files.ledgers("only") for record in read(files.store, chain, files.key)]
    return sum(isinstance(record, Committed) for record in records)


async def test_groups_are_seen_as_one_stage_and_pause_and_limit_reach_them(here: Service, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    document = spec(only=numbers(300, "needs_file_from", flag=str(flag), first=100))
    await here.submit(document, "steered", tmp_path, TESTS)
    await eventually_async(lambda: _is_stuck(here, "steered", tmp_path))
    seen = await stage(here, "steered", "only")
    assert (seen.state, seen.partitions) == ("running", 300)
    await here.runs.steer("steered", "pause")
    flag.touch()
    await eventually_async(lambda: _is_at_rest(here, "steered"))
    held = await stage(here, "steered", "only")
    assert (held.committed, held.partitions) == (on_record(here, "steered"), 300)
    assert seen.committed < held.committed < 300
    await here.runs.steer("steered", "limit", "only", 1)
    await here.runs.steer("steered", "unpause")
    assert (await here.runs.end("steered")).failure is None
    done = await stage(here, "steered", "only")
    assert (done.state, done.committed, done.partitions, done.rows) == ("done", 300, 300, 300)
    manifest = here.runs.files("steered").manifest("only")
    assert manifest is not None
    assert {outcome.attempt for outcome in manifest.outcomes} == {1}, "what ran was let end"


async def _is_stuck(here: Service, run: str, folder: Path) -> bool:
    """Returns whether both slots wait for the file, and the display equals the ledgers."""
    seen = await stage(here, run, "only")
    return seen.running == len(os.listdir(folder)) == 2 and seen.committed == on_record(here, run)


async def _is_at_rest(here: Service, run: str) -> bool:
    view = await here.runs.view(run)
    return view.state == "paused" and not view.nodes


async def test_failed_group_fails_the_run_and_a_resumption_goes_on(here: Service, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    document = spec(only=numbers(300, "needs_flag_from", flag=str(flag), first=230))
    await here.submit(document, "resumed", tmp_path, TESTS)
    end = await here.runs.end("resumed")
    assert end.failure is not None
    assert (end.failure.failure, end.failure.node) == ("user error", "only")
    stopped = await stage(here, "resumed", "only")
    assert (stopped.committed, stopped.partitions) == (on_record(here, "resumed"), 300)
    left = 6 - len(here.runs.files("resumed").closed_groups("only"))
    flag.touch()
    await here.runs.resume("resumed")
    assert (await here.runs.end("resumed")).failure is None
    found = await events(here, "resumed")
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] in (left, left + 1), "closed groups are not looked at again"
