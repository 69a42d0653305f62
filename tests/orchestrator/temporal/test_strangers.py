"""A user without the deployment key, with access to Temporal's port, cannot read, forge, repeat or drive anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from eventually import eventually_async
from orchestrator.record_histories import ITEMS, TESTS, M, mapped, spec
from orchestrator.temporal.stranger import Stranger, plain, public_command
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RetryPolicy

from treadle.client.client import Runs
from treadle.client.garbage_collection import remove
from treadle.client.testing.service import Service
from treadle.orchestrator.protocol import messages
from treadle.orchestrator.run_requests.requests import NoSuchRun
from treadle.orchestrator.run_requests.run_views import FOREIGN
from treadle.orchestrator.temporal.temporal_runs import TemporalRuns
from treadle.primitives.errors import CorruptError

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET = "s3cret-marker"
PATIENCE = timedelta(seconds=20)
ONCE = RetryPolicy(maximum_attempts=1)
FORGED = {"summary": json.dumps({"metrics": {"total": {"total": 999_999}}})}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(here: Service) -> AsyncIterator[Stranger]:
    address = here.client.service_client.config.target_host
    client = await Client.connect(address, namespace=here.client.namespace)
    with public_command() as command:
        yield Stranger(command, client, address)


def held(flag: Path, **more: Any) -> dict[str, Any]:
    """A sum that waits for the flag, and returns its total."""
    sum_ = {"type": "reduce", "input": "slow", "per": "all", "uses": f"{M}:total", "metrics": {"total": "integer"}}
    slow = mapped(ITEMS, "slowly", **{"with": {"flag": str(flag)}})
    outputs = {"total": "${{ stages.total.metrics.total }}"}
    return spec(slow=slow, total=sum_) | {"outputs": outputs} | more


async def running(here: Service, run: str, folder: Path) -> Path:
    """Starts the run. On return its first segment is running."""
    flag = folder / SECRET
    await here.submit(held(flag), run, folder, TESTS)
    await eventually_async(lambda: _busy(here, run))
    return flag


async def _busy(here: Service, run: str) -> bool:
    view = await here.runs.view(run)
    return any(progress.running for node in view.nodes for progress in node.progress)


async def is_forged(here: Service, run: str) -> None:
    """Checks that the run failed as forged, and reaches the right result once it is resumed."""
    end = await here.runs.end(run)
    assert end.failure is not None
    assert (end.state, end.failure.failure, end.outputs) == ("failed", "forged", {})
    assert await here.runs.resume(run)
    await gives_its_total(here, run)


async def gives_its_total(here: Service, run: str) -> None:
    end = await here.runs.end(run)
    assert end.failure is None, end
    assert end.outputs == {"total": sum(range(6))}


async def queue_of(here: Service, run: str) -> str:
    return (await here.client.get_workflow_handle(run).describe()).task_queue


# -- reading


@pytest.mark.parametrize("command", ["show", "describe"])
async def test_stranger_reads_no_input_output_or_label(
    here: Service, stranger: Stranger, tmp_path: Path, command: str
) -> None:
    run = f"read-{command}"
    flag = tmp_path / SECRET
    await here.submit(held(flag, labels={"team": SECRET}), run, tmp_path, TESTS)
    flag.touch()
    await gives_its_total(here, run)
    text = await asyncio.to_thread(
        stranger.temporal, "workflow", command, "--workflow-id", run, "--output", "json", "--no-json-shorthand-payloads"
    )
    assert run in text
    assert SECRET not in text
    payloads = [payload for event in await stranger.history(run) for payload in payloads_of(event)]
    assert payloads
    assert all(payload.metadata["encoding"] == b"binary/treadle-1" for payload in payloads)


def payloads_of(message: Any) -> list[Payload]:
    """The payloads made by treadle. Temporal itself writes search attributes."""
    found: list[Payload] = []
    for field, value in message.ListFields():
        if field.name in ("search_attributes", "details") or field.message_type is None:
            continue
        for one in value if field.is_repeated else [value]:
            if isinstance(one, Payload):
                found.append(one)
            elif hasattr(one, "ListFields"):
                found += payloads_of(one)
    return found


async def test_stranger_reads_nothing_in_the_answer_of_a_query(
    here: Service, stranger: Stranger, tmp_path: Path
) -> None:
    flag = await running(here, "asked", tmp_path)
    handle = stranger.client.get_workflow_handle("asked")
    with pytest.raises(KeyError):  # the plain client does not know the encoding
        await handle.query("paused")
    flag.touch()
    await gives_its_total(here, "asked")


# -- answers of activities


async def test_forged_completion_of_an_activity_fails_the_run(
    here: Service, stranger: Stranger, tmp_path: Path
) -> None:
    flag = await running(here, "forged-answer", tmp_path)
    activity = await stranger.open_activity("forged-answer")
    where = ["--workflow-id", "forged-answer", "--activity-id", activity]
    await asyncio.to_thread(stranger.temporal, "activity", "complete", *where, "--result", json.dumps(FORGED))
    flag.touch()
    await is_forged(here, "forged-answer")


@pytest.mark.parametrize("source", ["same run", "other run", "start"])
async def test_copied_answer_of_an_activity_fails_the_run(
    here: Service, stranger: Stranger, tmp_path: Path, source: str
) -> None:
    """The copied answer is a real one: of an earlier order, of another run, or an order itself."""
    run = f"copied-{source.replace(' ', '-')}"
    if source == "other run":
        (await running(here, "source", tmp_path)).touch()
        await here.runs.end("source")
        (tmp_path / SECRET).unlink()
    flag = await running(here, run, tmp_path)
    payload = await copied(here, stranger, run, source)
    if source == "same run":  # its first resumption has ended
        flag.unlink(missing_ok=True)
        await here.runs.resume(run)
        await eventually_async(lambda: _busy(here, run))
    await stranger.complete(run, await stranger.open_activity(run), payload)
    flag.touch()
    await is_forged(here, run)


async def copied(here: Service, stranger: Stranger, run: str, source: str) -> Payload:
    if source == "start":
        return (await stranger.history(run))[0].workflow_execution_started_event_attributes.input.payloads[0]
    if source == "same run":
        await here.runs.cancel(run)
        await here.runs.end(run)
    return await answer_in(stranger, run if source == "same run" else "source")


async def answer_in(stranger: Stranger, run: str) -> Payload:
    """The answer of an activity, from the history."""
    for event in await stranger.history(run):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            return event.activity_task_completed_event_attributes.result.payloads[0]
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            order = event.activity_task_scheduled_event_attributes.input.payloads[0]
    return order


@pytest.mark.parametrize("kind", ["user error", "internal", "forged"])
async def test_forged_failure_of_an_activity_is_named_as_forged(
    here: Service, stranger: Stranger, tmp_path: Path, kind: str
) -> None:
    run = f"failure-{kind.replace(' ', '-')}"
    flag = await running(here, run, tmp_path)
    await stranger.fail(run, await stranger.open_activity(run), kind)
    flag.touch()
    end = await here.runs.end(run)
    assert end.failure is not None
    assert end.failure.failure == "forged"
    assert "made up" not in end.failure.message


async def test_forged_heartbeat_is_shown_as_refused_and_changes_nothing(
    here: Service, stranger: Stranger, tmp_path: Path
) -> None:
    flag = await running(here, "beat", tmp_path)
    handle = stranger.client.get_async_activity_handle(
        workflow_id="beat", run_id=None, activity_id=await stranger.open_activity("beat")
    )
    await handle.heartbeat("slow", [{"partitions": 1, "committed": 1}], "")
    assert (await here.runs.view("beat")).state == "running"
    flag.touch()
    await gives_its_total(here, "beat")


# -- activities without an order


@pytest.mark.parametrize("kind", [messages.RUN_NODE, messages.OPEN_RUN, messages.END_RUN])
async def test_activity_without_a_run_is_refused(here: Service, stranger: Stranger, tmp_path: Path, kind: str) -> None:
    run = f"alone-{kind.rpartition('.')[2]}"
    flag = await running(here, run, tmp_path)
    order = {"run": run, "node": "slow", "orders": json.dumps({"bindings": {"inputs": {"flag": "/etc/passwd"}}})}
    where = ["--activity-id", f"mine-{run}", "--type", kind, "--task-queue", await queue_of(here, run)]
    limits = ["--start-to-close-timeout", "20s", "--retry-maximum-attempts", "1"]
    text = await asyncio.to_thread(
        stranger.temporal, "activity", "execute", *where, *limits, "--input", json.dumps(order), "--input", '"now"'
    )
    assert "FAILED" in text.upper()
    flag.touch()
    await gives_its_total(here, run)


async def test_copied_order_in_an_activity_without_a_run_is_refused(
    here: Service, stranger: Stranger, tmp_path: Path
) -> None:
    flag = await running(here, "reordered", tmp_path)
    order = await answer_in(stranger, "reordered")
    queue = await queue_of(here, "reordered")
    handle = await stranger.client.start_activity(
        messages.RUN_NODE,
        order,
        id="mine-reordered",
        task_queue=queue,
        start_to_close_timeout=PATIENCE,
        retry_policy=ONCE,
    )
    with pytest.raises(Exception, match=r"(?i)activity"):
        await handle.result()
    flag.touch()
    await gives_its_total(here, "reordered")


# -- runs


async def test_run_that_a_stranger_starts_is_refused(here: Service, stranger: Stranger, tmp_path: Path) -> None:
    flag = await running(here, "model", tmp_path)
    queue = await queue_of(here, "model")
    text = await asyncio.to_thread(
        stranger.temporal,
        *("workflow", "execute", "--workflow-id", "mine", "--type", messages.WORKFLOW, "--task-queue", queue),
        *("--input", json.dumps({"run": "model", "digest": "0" * 64}), "--memo", 'workflow="nightly"'),
    )
    assert "FAILED" in text.upper()
    assert {view.run: view.workflow async for view in here.runs.list_runs(prefix="mine")} == {"mine": FOREIGN}
    flag.touch()
    await gives_its_total(here, "model")


@pytest.mark.parametrize("change", ["id", "tick"])
async def test_copied_start_does_not_start_another_workflow(
    here: Service, stranger: Stranger, tmp_path: Path, change: str
) -> None:
    run = f"origin-{change}"
    flag = await running(here, run, tmp_path)
    start = await copied(here, stranger, run, "start")
    kind, id_ = (messages.WORKFLOW, f"{run}-2") if change == "id" else ("treadle.tick", f"{run}-2")
    handle = await stranger.client.start_workflow(kind, start, id=id_, task_queue=await queue_of(here, run))
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    flag.touch()
    await gives_its_total(here, run)


# -- requests to a run


@pytest.mark.parametrize("name", [messages.STEER, "pause", "setConcurrency"])
async def test_forged_update_is_rejected(here: Service, stranger: Stranger, tmp_path: Path, name: str) -> None:
    run = f"update-{name}"
    flag = await running(here, run, tmp_path)
    request = {"action": "pause", "execution": "", "id": "x"}
    where = ["--workflow-id", run, "--name", name, "--update-id", "x", "--input", json.dumps(request)]
    text = await asyncio.to_thread(stranger.temporal, "workflow", "update", "execute", *where)
    assert "COMPLETED" not in text.upper()
    assert (await here.runs.view(run)).state == "running"
    flag.touch()
    await gives_its_total(here, run)


async def test_update_that_is_sent_again_changes_nothing(here: Service, stranger: Stranger, tmp_path: Path) -> None:
    flag = await running(here, "again", tmp_path)
    await here.runs.steer("again", "pause")
    await here.runs.steer("again", "unpause")
    request = next(
        event.workflow_execution_update_accepted_event_attributes.accepted_request.input.args.payloads[0]
        for event in await stranger.history("again")
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    )
    with pytest.raises(WorkflowUpdateFailedError):
        await stranger.client.get_workflow_handle("again").execute_update(messages.STEER, request, id="another")
    flag.touch()
    await gives_its_total(here, "again")


@pytest.mark.parametrize("name", [messages.STEER, "pause"])
async def test_forged_signal_changes_nothing(here: Service, stranger: Stranger, tmp_path: Path, name: str) -> None:
    run = f"signal-{name}"
    flag = await running(here, run, tmp_path)
    request = json.dumps({"action": "pause", "resumption": 1, "number": 7})
    where = ["--workflow-id", run, "--name", name, "--input", request]
    await asyncio.to_thread(stranger.temporal, "workflow", "signal", *where)
    flag.touch()
    await gives_its_total(here, run)


# -- a worker without the key


async def served_by(here: Service, stranger: Stranger, run: str, folder: Path, command: Command) -> None:
    """Submits a run to a queue that only the stranger serves, and ends it with the command."""
    runs = Runs(TemporalRuns(here.client), here.site.store, here.site.key, f"of-{run}")
    await here.submit(held(folder / "never"), run, folder, TESTS, runs)
    await stranger.end(f"of-{run}", command)


@pytest.mark.parametrize("source", ["made up", "copied"])
async def test_result_of_a_worker_without_the_key_is_refused(
    here: Service, stranger: Stranger, tmp_path: Path, source: str
) -> None:
    """The copied result is a real one, of an earlier execution of the same run."""
    run = f"result-{source.replace(' ', '-')}"
    result = plain({"outputs": {"total": 999_999}, "skipped": [], "execution": ""})
    if source == "copied":
        await here.submit(held(tmp_path), run, tmp_path, TESTS)
        await gives_its_total(here, run)
        closed = (await stranger.history(run))[-1].workflow_execution_completed_event_attributes
        result = closed.result.payloads[0]
        await here.client.workflow_service.delete_workflow_execution(deletion(here, run))
        await eventually_async(lambda: _is_gone(here, run))
        await asyncio.to_thread(remove, here.site.store, run)
    command = Command(command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION)
    command.complete_workflow_execution_command_attributes.result.payloads.append(result)
    await served_by(here, stranger, run, tmp_path, command)
    with pytest.raises(CorruptError):
        await here.runs.end(run)


def deletion(here: Service, run: str) -> DeleteWorkflowExecutionRequest:
    execution = WorkflowExecution(workflow_id=run)
    return DeleteWorkflowExecutionRequest(namespace=here.client.namespace, workflow_execution=execution)


async def _is_gone(here: Service, run: str) -> bool:
    try:
        await here.runs.view(run)
    except NoSuchRun:
        return True
    return False


async def test_failure_of_a_worker_without_the_key_is_named_as_forged(
    here: Service, stranger: Stranger, tmp_path: Path
) -> None:
    command = Command(command_type=CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION)
    failure = command.fail_workflow_execution_command_attributes.failure
    failure.message, failure.application_failure_info.type = "delete everything", "user error"
    await served_by(here, stranger, "result-failed", tmp_path, command)
    end = await here.runs.end("result-failed")
    assert end.failure is not None
    assert end.failure.failure == "forged"
    assert "delete everything" not in end.failure.message
