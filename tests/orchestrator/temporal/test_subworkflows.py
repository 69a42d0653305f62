"""A workflow run by a stage is a real child workflow: it fails, stops, pauses and resumes with its parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually_async
from msgspec.structs import replace
from orchestrator.record_histories import ITEMS, TESTS, spec
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus

from treadle.client.submission import prepare
from treadle.client.testing.service import Service
from treadle.dsl.model import Spec
from treadle.orchestrator.temporal.activities import plan_site
from treadle.primitives.errors import UsageError

pytestmark = pytest.mark.asyncio(loop_scope="module")
F = "orchestrator.cli_functions"


def mapped(given: Any, function: str, with_: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "map", "input": given, "uses": f"{F}:{function}", "with": dict(with_ or {}), **more}


def child(inputs: Mapping[str, Any] | None = None, **stages: Any) -> dict[str, Any]:
    """A workflow that adds up `numbers`, after the given stages."""
    total: dict[str, Any] = {"type": "reduce", "input": "inputs.numbers", "per": "all", "uses": f"{F}:total"}
    total |= {"metrics": {"total": "integer"}, "needs": list(stages)}
    declared = {"numbers": {"type": "dataset", "required": True}, **(inputs or {})}
    outputs = {"total": "${{ stages.total.metrics.total }}", "run": "${{ run.id }}"}
    return spec(**stages, total=total) | {"name": "inner", "inputs": declared, "outputs": outputs}


def runs(document: Mapping[str, Any], numbers: Any = None, **more: Any) -> dict[str, Any]:
    given = {"numbers": numbers or {"items": [1, 2, 3]}, **more.pop("with_", {})}
    return {"type": "workflow", "uses": document, "with": given, **more}


def outer(outputs: Mapping[str, Any] | None = None, **stages: Any) -> dict[str, Any]:
    return spec(**stages) | {"outputs": dict(outputs or {})}


def lines(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()


async def status(here: Service, run: str) -> WorkflowExecutionStatus | None:
    return (await here.client.get_workflow_handle(run).describe()).status


async def kinds(here: Service, run: str) -> Counter[str]:
    return Counter(EventType.Name(event.event_type) for event in (await here.history(run)).events)


def waiting(folder: Path) -> tuple[dict[str, Any], Path, Path]:
    """(a child that waits in one slot while a file exists, the file, the log of its earlier work)."""
    log, flag = folder / "log", folder / "flag"
    flag.touch()
    noted = mapped({"range": 1}, "noted", {"log": str(log)})
    held = mapped("noted", "waits", {"flag": str(flag)}, needs=["noted"])
    return child(noted=noted, held=held), flag, log


# -- outputs ---------------------------------------------------------------------------------------------------------


async def test_outputs_flow_from_one_child_to_the_next_and_to_the_parent(here: Service, tmp_path: Path) -> None:
    second = child({"by": {"type": "integer", "default": 1}}, seen=mapped(ITEMS, "pair", when="inputs.by == 6"))
    document = outer(
        {"first": "${{ stages.first.outputs }}", "total": "${{ stages.second.outputs.total }}"},
        first=runs(child()),
        second=runs(second, {"range": 5}, with_={"by": "${{ stages.first.outputs.total }}"}),
        never=mapped(ITEMS, "pair", when="stages.second.outputs.total > 10"),
    )
    document["outputs"].pop("first")
    await here.submit(document, "flow", tmp_path, TESTS)
    end = await here.runs.end("flow")
    assert (end.outputs, end.skipped) == ({"total": 10}, ("never",))
    inner = await here.runs.end("flow/second")
    assert (inner.outputs, inner.skipped) == ({"total": 10, "run": "flow/second"}, ())
    about = await here.client.get_workflow_handle("flow/second").describe()
    assert about.parent_id == "flow"
    assert (await about.memo())["workflow"] == "inner"
    assert here.runs.files("flow/second").prefix == "runs/flow/_second"


async def test_child_inside_a_child(here: Service, tmp_path: Path) -> None:
    middle = outer({"total": "${{ stages.deep.outputs.total }}"}, deep=runs(child())) | {"name": "middle"}
    document = outer({"total": "${{ stages.mid.outputs.total }}"}, mid={"type": "workflow", "uses": middle})
    await here.submit(document, "nested", tmp_path, TESTS)
    assert (await here.runs.end("nested")).outputs == {"total": 6}
    assert (await here.runs.end("nested/mid/deep")).outputs["run"] == "nested/mid/deep"


async def test_skipped_child_starts_nothing_and_its_outputs_are_null(here: Service, tmp_path: Path) -> None:
    document = outer(
        {"total": "${{ stages.sub.outputs.total }}", "other": "${{ stages.other.outputs.total }}"},
        sub=runs(child(), when="1 > 2"),
        other=runs(child(), needs=["sub"]),
    )
    await here.submit(document, "skipping", tmp_path, TESTS)
    end = await here.runs.end("skipping")
    assert (end.outputs, end.skipped) == ({"total": None, "other": 6}, ("sub",))
    assert [run.run async for run in here.runs.list_runs(prefix="skipping/")] in ([], ["skipping/other"])


async def test_input_that_does_not_fit_fails_the_stage(here: Service, tmp_path: Path) -> None:
    strict = child({"few": {"type": "integer", "maximum": 5, "required": True}})
    document = outer(first=runs(child()), second=runs(strict, with_={"few": "${{ stages.first.outputs.total }}"}))
    await here.submit(document, "unfit", tmp_path, TESTS)
    end = await here.runs.end("unfit")
    assert end.failure is not None
    assert (end.failure.failure, end.failure.node) == ("user error", "second")
    assert "unfit/second" in end.failure.message
    assert "'few' does not fit: it must be at most 5, not 6" in end.failure.message


# -- failure, resume -------------------------------------------------------------------------------------------------


async def test_what_an_event_started_reads_nothing_outside_by_a_link(here: Service, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (tmp_path / "secret.txt").write_text("1")
    (base / "a.txt").symlink_to(tmp_path / "secret.txt")
    document = outer(sub=runs(child(), {"uri": "*.txt", "format": "text"}))
    found = prepare(
        Spec.model_validate(document, by_alias=True, by_name=False),
        {},
        run="linked",
        base=base,
        roots=[TESTS],
        captured={},
        site=plan_site(here.site),
    )
    await here.runs.submit(replace(found, submission=replace(found.submission, allow=(str(base),))))
    end = await here.runs.end("linked")
    assert end.failure is not None
    assert (end.failure.failure, end.failure.run) == ("user error", "linked/sub")
    assert f"would touch '{tmp_path}/secret.txt', to which {base}/a.txt leads" in end.failure.message


async def test_failure_is_the_stages_and_a_resume_goes_on_inside_the_child(here: Service, tmp_path: Path) -> None:
    flag, log, done = tmp_path / "flag", tmp_path / "log", tmp_path / "done"
    flag.touch()
    noted = mapped({"range": 4}, "noted", {"log": str(log)})
    bad = mapped("noted", "fails_while", {"flag": str(flag)}, needs=["noted"])
    document = outer(
        {"total": "${{ stages.sub.outputs.total }}"},
        before=runs(child(noted=mapped({"range": 2}, "noted", {"log": str(done)}))),
        sub=runs(child(noted=noted, bad=bad), needs=["before"]),
    )
    await here.submit(document, "mended", tmp_path, TESTS)
    end = await here.runs.end("mended")
    assert end.failure is not None
    assert (end.failure.failure, end.failure.node, end.failure.run) == ("user error", "sub", "mended/sub")
    assert end.failure.message.startswith("run mended/sub: ")
    assert "the warehouse is closed" in end.failure.message
    flag.unlink()
    assert await here.runs.resume("mended")
    assert (await here.runs.end("mended")).outputs == {"total": 6}
    assert lines(log) == {f"noted {n}": 1 for n in range(4)}, "what the child had committed is kept"
    assert lines(done) == {f"noted {n}": 1 for n in range(2)}
    assert (await here.runs.view("mended/sub")).resumption == 2
    assert (await here.runs.view("mended/before")).resumption == 1, "a child that is over is not started again"


async def test_child_is_not_resumed_by_itself(here: Service, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run any/sub is a part of run any"):
        await here.runs.resume("any/sub")


async def test_child_that_a_person_cancels_fails_its_stage(here: Service, tmp_path: Path) -> None:
    inner, flag, log = waiting(tmp_path)
    await here.submit(outer(sub=runs(inner)), "alone", tmp_path, TESTS)
    await eventually_async(lambda: sum(lines(log).values()) == 1)
    await here.runs.cancel("alone/sub")
    end = await here.runs.end("alone")
    assert end.failure is not None
    assert (end.state, end.failure.message) == ("failed", "run alone/sub was cancelled")
    flag.unlink()
    await here.runs.resume("alone")
    assert (await here.runs.end("alone")).state == "succeeded"
    assert set(lines(log).values()) == {1}


# -- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_cancel_and_terminate_reach_the_child(here: Service, tmp_path: Path, how: str) -> None:
    inner, flag, log = waiting(tmp_path)
    await here.submit(outer({"total": "${{ stages.sub.outputs.total }}"}, sub=runs(inner)), how, tmp_path, TESTS)
    await eventually_async(lambda: sum(lines(log).values()) == 1)
    await getattr(here.runs, how)(how)
    ended = {"cancel": WorkflowExecutionStatus.CANCELED, "terminate": WorkflowExecutionStatus.TERMINATED}[how]

    async def over() -> bool:
        return [await status(here, run) for run in (how, f"{how}/sub")] == [ended, ended]

    await eventually_async(over)
    flag.unlink()
    await here.runs.resume(how)
    assert (await here.runs.end(how)).outputs == {"total": 6}
    assert set(lines(log).values()) == {1}


async def test_resume_right_after_a_terminate_waits_until_the_child_is_gone(here: Service, tmp_path: Path) -> None:
    inner, flag, log = waiting(tmp_path)
    await here.submit(outer({"total": "${{ stages.sub.outputs.total }}"}, sub=runs(inner)), "again", tmp_path, TESTS)
    await eventually_async(lambda: sum(lines(log).values()) == 1)
    await here.runs.terminate("again")
    await here.runs.resume("again")
    flag.unlink()
    assert (await here.runs.end("again")).outputs == {"total": 6}
    assert (await here.runs.view("again/sub")).resumption == 2
    assert set(lines(log).values()) == {1}


async def test_limit_on_a_child_names_its_run(here: Service, tmp_path: Path) -> None:
    inner, flag, log = waiting(tmp_path)
    await here.submit(outer(sub=runs(inner)), "limited", tmp_path, TESTS)
    await eventually_async(lambda: sum(lines(log).values()) == 1)
    with pytest.raises(UsageError, match="stage sub is run limited/sub"):
        await here.runs.steer("limited", "limit", "sub", 1)
    await here.runs.steer("limited/sub", "limit", "held", 1)
    flag.unlink()
    assert (await here.runs.end("limited")).state == "succeeded"


async def test_failure_beside_it_stops_the_child(here: Service, tmp_path: Path) -> None:
    inner, flag, log = waiting(tmp_path)
    go = tmp_path / "go"
    go.touch()
    bad = mapped({"items": [5]}, "fails_while", {"flag": str(flag)}, needs=["late"])
    late = mapped({"items": [1]}, "waits", {"flag": str(go)})
    await here.submit(outer(sub=runs(inner), late=late, bad=bad), "beside", tmp_path, TESTS)
    await eventually_async(lambda: sum(lines(log).values()) == 1)
    go.unlink()
    end = await here.runs.end("beside")
    assert end.failure is not None
    assert end.failure.node == "bad"
    assert await status(here, "beside/sub") == WorkflowExecutionStatus.CANCELED


async def test_pause_and_unpause_reach_the_child(here: Service, tmp_path: Path) -> None:
    inner, flag, log = waiting(tmp_path)
    await here.submit(outer({"total": "${{ stages.sub.outputs.total }}"}, sub=runs(inner)), "rest", tmp_path, TESTS)
    await eventually_async(lambda: sum(lines(log).values()) == 1)
    sub = here.client.get_workflow_handle("rest/sub")
    await here.runs.steer("rest", "pause")

    async def paused() -> bool:
        return bool(await sub.query("paused"))

    await eventually_async(paused)
    flag.unlink()

    async def still() -> bool:
        return (await here.runs.view("rest/sub")).state == "paused" and (await here.runs.view("rest")).state == "paused"

    await eventually_async(still)
    await here.runs.steer("rest", "unpause")
    assert (await here.runs.end("rest")).outputs == {"total": 6}
    assert not await sub.query("paused")


# -- history ---------------------------------------------------------------------------------------------------------


async def test_child_costs_its_parent_few_events(here: Service, tmp_path: Path) -> None:
    wide = child(many=mapped({"range": 300}, "pair", batch={"maxItems": 1}), more=mapped(ITEMS, "pair"))
    await here.submit(outer(**{f"sub{n}": runs(wide) for n in range(3)}), "short", tmp_path, TESTS)
    assert (await here.runs.end("short")).state == "succeeded"
    found = await kinds(here, "short")
    again = found["EVENT_TYPE_WORKFLOW_TASK_FAILED"] + found["EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT"]
    assert found["EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED"] == 3
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] == 0, "the children's are in their own histories"
    assert sum(found.values()) <= 12 + 9 * 3 + 6 * again
