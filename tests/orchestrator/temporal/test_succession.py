"""The work of a dead driver is resumed at once, and stops if it was ordered to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from eventually import eventually_async
from orchestrator.record_histories import ITEMS, TESTS, mapped, spec
from temporalio import workflow
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueRequest, PollActivityTaskQueueResponse
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import CancelledError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from treadle.client.testing.service import Service
from treadle.orchestrator.embedded.python_environments import FIRST, worker_identity
from treadle.orchestrator.temporal import activities
from treadle.orchestrator.temporal.takeover import bury

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUEUE = "of-the-dead"
HOUR = timedelta(hours=1)


@workflow.defn
class Patient:
    """Waits for one activity, with a timeout of an hour for its driver."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(
            "work",
            task_queue=QUEUE,
            start_to_close_timeout=HOUR,
            heartbeat_timeout=HOUR,
            retry_policy=RetryPolicy(initial_interval=HOUR),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


@pytest_asyncio.fixture(loop_scope="module")
async def patient(here: Service) -> AsyncIterator[WorkflowHandle[Patient, None]]:
    runner = UnsandboxedWorkflowRunner()
    async with Worker(here.client, task_queue="living", workflows=[Patient], workflow_runner=runner):
        handle = await here.client.start_workflow(Patient.run, id=f"patient-{time.time_ns()}", task_queue="living")
        yield handle
        with contextlib.suppress(RPCError):  # it is over
            await handle.terminate()


async def begin(client: Client, identity: str) -> PollActivityTaskQueueResponse:
    """Take the activity as a driver with this identity, and send nothing more."""
    request = PollActivityTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=QUEUE), identity=identity
    )
    taken = await client.workflow_service.poll_activity_task_queue(request, timeout=timedelta(seconds=60))
    assert taken.task_token
    return taken


async def pending(handle: WorkflowHandle[Patient, None]) -> PendingActivityInfo:
    (found,) = (await handle.describe()).raw_description.pending_activities
    return found


async def test_work_of_a_dead_embedded_driver_restarts_at_once(
    here: Service, patient: WorkflowHandle[Patient, None]
) -> None:
    assert (await begin(here.client, worker_identity(FIRST))).attempt == 1
    await bury(here.client, worker_identity(FIRST))
    assert (await begin(here.client, worker_identity(FIRST))).attempt == 2
    assert (await pending(patient)).last_failure.application_failure_info.type == "worker lost"


async def test_work_of_other_drivers_is_left_alone(here: Service, patient: WorkflowHandle[Patient, None]) -> None:
    await begin(here.client, "another host's driver")
    await bury(here.client, worker_identity(FIRST))
    found = await pending(patient)
    assert (found.state, found.attempt) == (PendingActivityState.PENDING_ACTIVITY_STATE_STARTED, 1)


async def test_stop_request_to_a_dead_driver_counts_as_done(
    here: Service, patient: WorkflowHandle[Patient, None]
) -> None:
    await begin(here.client, worker_identity(FIRST))
    await patient.cancel()

    async def told() -> bool:
        return (await pending(patient)).state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED

    await eventually_async(told)
    await bury(here.client, worker_identity(FIRST))
    with pytest.raises(WorkflowFailureError) as caught:
        await patient.result()
    assert isinstance(caught.value.cause, CancelledError)


async def test_a_pause_outlives_the_driver_that_did_not_hear_of_it(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's driver falls silent with a stop order pending. The server then does not retry its segment."""
    monkeypatch.setattr(activities, "HEARTBEAT_SECONDS", 3600)
    flag = tmp_path / "go"
    await here.submit(spec(only=mapped(ITEMS, "slowly", **{"with": {"flag": str(flag)}})), "silent", tmp_path, TESTS)

    async def begun() -> bool:
        return any(node.node == "only" for node in (await here.runs.view("silent")).nodes)

    await eventually_async(begun)
    await here.runs.steer("silent", "pause")

    async def at_rest() -> bool:
        view = await here.runs.view("silent")
        assert view.open, "the silence of its driver has failed the run"
        return view.state == "paused" and not view.nodes

    await eventually_async(at_rest)
    events = (await here.history("silent")).events
    assert any(event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT for event in events)
    monkeypatch.undo()
    flag.touch()
    await here.runs.steer("silent", "unpause")
    assert (await here.runs.end("silent")).failure is None
