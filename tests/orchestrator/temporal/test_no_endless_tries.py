"""A failure that cannot pass ends a run with a class. Otherwise Temporal would retry it for ever, without a message."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventually import eventually_async
from orchestrator.record_histories import TESTS, mapped, spec

from treadle.client.submission import _MANY, prepare  # private: the limit is not a setting
from treadle.client.testing.service import Service, service
from treadle.dsl.model import Spec
from treadle.executors.program import Keep
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import Graph, ItemsFeed, Policy, Segment
from treadle.orchestrator.protocol.messages import PAYLOAD, NodeReport
from treadle.orchestrator.protocol.payload_limits import after, bounded, check_graph, is_small
from treadle.orchestrator.run_requests.run_views import RunEnd
from treadle.orchestrator.scheduler.instructions import Summary
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.orchestrator.temporal import activities
from treadle.orchestrator.temporal.activities import plan_site
from treadle.primitives.errors import InternalError, UsageError

ONE = spec(only=mapped({"range": 2, "partitions": 1}))
TEXT = {"big": {"type": "string", "required": True}}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(Home(tmp_path / "home")) as running:
        yield running


async def ended(here: Service, run: str, document: dict[str, Any], base: Path, **inputs: Any) -> RunEnd:
    known = Spec.model_validate(document, by_alias=True, by_name=False)
    site = plan_site(here.site)
    await here.runs.submit(prepare(known, inputs, run=run, base=base, roots=[TESTS], captured={}, site=site))
    async with asyncio.timeout(60):
        return await here.runs.end(run)


def words_of(end: RunEnd, failure: str) -> str:
    """The message of a run that failed with this class."""
    assert end.failure is not None
    assert (end.state, end.failure.failure) == ("failed", failure)
    return end.failure.message


async def test_every_defect_ends_a_run_with_a_failure_class(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: Any) -> None:
        raise KeyError("planner")

    def illegal(*_: Any) -> None:
        raise InternalError("an event that cannot be")

    with monkeypatch.context() as patch:
        patch.setattr(activities, "make_plan", defect)
        end = await ended(here, "planner", ONE, tmp_path)
    assert "KeyError: 'planner'" in words_of(end, "internal")

    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "handle", illegal)
        end = await ended(here, "scheduler", ONE, tmp_path)
    assert "an event that cannot be" in words_of(end, "internal")

    large = ONE | {"inputs": TEXT, "outputs": {"big": "${{ inputs.big }}"}}
    end = await ended(here, "opened", large, tmp_path, big="x" * PAYLOAD)
    assert "inputs that its conditions and outputs read" in words_of(end, "user error")

    twice = ONE | {"inputs": TEXT, "outputs": dict.fromkeys("abc", "${{ inputs.big }}")}
    end = await ended(here, "outputs", twice, tmp_path, big="x" * (PAYLOAD // 2))
    assert "the outputs have" in words_of(end, "user error")

    end = await ended(here, "after", ONE, tmp_path)
    assert end.state == "succeeded", "and the driver goes on with others"


def node(name: str) -> Segment:
    return Segment(name, (name,), ItemsFeed((), ()), (), Keep(), Policy())


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once an activity only lets its attempts end."""
    drained, drain = asyncio.Event(), Desk.drain

    def seen(desk: Desk) -> None:
        drain(desk)
        drained.set()

    monkeypatch.setattr(Desk, "drain", seen)
    return drained


async def rests(here: Service, folder: Path, resting: asyncio.Event) -> None:
    """Starts a run, pauses it, and waits until its endless attempt is left."""
    marks = folder / "marks"
    marks.mkdir()
    forever = mapped({"range": 1}, "needs_file_from", **{"with": {"flag": str(marks / "go"), "first": 0}})
    await here.submit(spec(only=forever), "resting", folder, TESTS)
    async with asyncio.timeout(60):
        await eventually_async(lambda: asyncio.to_thread(os.listdir, marks))
        await here.runs.steer("resting", "pause")
        await resting.wait()


async def test_a_run_that_rests_can_be_cancelled(here: Service, tmp_path: Path, resting: asyncio.Event) -> None:
    await rests(here, tmp_path, resting)
    async with asyncio.timeout(60):
        await here.runs.cancel("resting")
        assert (await here.runs.end("resting")).state == "cancelled"


async def test_stopping_driver_does_not_wait_for_a_paused_run(tmp_path: Path, resting: asyncio.Event) -> None:
    async with asyncio.timeout(120), service(Home(tmp_path / "home")) as running:
        await rests(running, tmp_path, resting)


def test_a_graph_that_temporal_would_not_take_is_refused() -> None:
    check_graph(Graph(tuple(node(f"stage_{number}") for number in range(_MANY))))
    with pytest.raises(UsageError, match="too large"):
        check_graph(Graph(tuple(node(f"stage_{number}") for number in range(20 * _MANY))))


def test_a_report_that_temporal_would_not_take_is_a_problem() -> None:
    small = NodeReport(summary=Summary(state={"n": 1}))
    assert bounded(small, "loop") == small
    large = bounded(NodeReport(summary=Summary(state={"text": "x" * PAYLOAD})), "loop")
    assert large.summary is None
    assert large.problem is not None
    assert "keep large values in data" in large.problem.message


@pytest.mark.parametrize("character", ["a", '"', "\u4e2d", "\U0001f600"], ids=["plain", "quoted", "wide", "wider"])
def test_summaries_of_earlier_nodes_leave_room_for_the_last_report(character: str) -> None:
    """A character of a summary takes up to twelve bytes of a payload."""

    def summary(text: str) -> Summary:
        return Summary(state={"text": text})

    bare = len(json.dumps(msgspec.to_builtins(summary(""))))
    most = (PAYLOAD // 32 - bare) // (len(json.dumps(character)) - 2)
    small, large = NodeReport(summary=summary(character * most)), NodeReport(summary=summary("a" * (PAYLOAD - 1000)))
    assert is_small(small, 16)
    assert not is_small(NodeReport(summary=summary(character * (most + 1))), 16)
    before = {f"n{number}": summary(character * most) for number in range(15)}
    assert after(before, small).summary == small.summary
    assert after(before, bounded(large, "n")) == NodeReport(stopped=True, before=before)
