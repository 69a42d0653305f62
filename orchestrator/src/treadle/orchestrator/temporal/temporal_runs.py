"""Answers requests about runs by asking Temporal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from treadle.primitives.errors import CorruptError, UsageError

from ..dispatcher.orders import Progress
from ..environment.connection_errors import Unreachable
from ..protocol import messages
from ..protocol.driver_count import drivers
from ..protocol.encryption import RefusedMessage, activity_context
from ..protocol.messages import RunStart, Steering
from ..run_requests import requests as r
from ..run_requests.run_views import FOREIGN, NodeView, RunEnd, RunFailure, RunView, State

A = TypeVar("A")
_ANSWER = timedelta(seconds=10)
_STEERING_ATTEMPTS = 3
"""A run that cuts its history continues as another execution, which rejects requests made for the previous one."""
_FORGED = "Somebody else can write to Temporal: see SECURITY.md. If you changed the key, keep the former one in keys/."
_TRIGGER = SearchAttributeKey.for_keyword(messages.TRIGGER)
_REUSE = {
    "any": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    "failed": WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
    "none": WorkflowIDReusePolicy.REJECT_DUPLICATE,
}
STATES: dict[WorkflowExecutionStatus, State] = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.COMPLETED: "succeeded",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "running",
    WorkflowExecutionStatus.TIMED_OUT: "timed out",
}


class TemporalRuns:
    """The RunService that asks Temporal."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._handlers: dict[type, Callable[[Any], Awaitable[Any]]] = {
            r.ViewRun: self._view,
            r.FindRun: self._find,
            r.ReadMemo: self._memo,
            r.ListRuns: self._list,
            r.AwaitEnd: self._end,
            r.CountDrivers: self._drivers,
            r.StartRun: self._start,
            r.CancelRun: self._cancel,
            r.TerminateRun: self._terminate,
            r.SteerRun: self._steer,
        }

    async def ask(self, request: r.RunRequest[A]) -> A:
        """See RunService.ask."""
        answer: A = await self._handlers[type(request)](request)
        return answer

    async def _start(self, asked: r.StartRun) -> bool:
        start = msgspec.convert(asked.start, RunStart)
        trigger = [SearchAttributePair(_TRIGGER, asked.trigger)] if asked.trigger else []
        try:
            with _translated():
                await self._client.start_workflow(
                    messages.WORKFLOW,
                    start,
                    id=start.run,
                    task_queue=asked.queue,
                    id_reuse_policy=_REUSE[asked.after],
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    start_delay=timedelta(seconds=asked.delay) if asked.delay else None,
                    memo=asked.memo,
                    search_attributes=TypedSearchAttributes(trigger),
                    static_summary=asked.workflow,
                )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def _view(self, asked: r.ViewRun) -> RunView:
        description = await self._describe(asked.run)
        return await view_of(description, await self._paused(asked.run, description))

    async def _find(self, asked: r.FindRun) -> bool:
        try:
            await self._describe(asked.run)
        except r.NoSuchRun:
            return False
        return True

    async def _memo(self, asked: r.ReadMemo) -> dict[str, Any]:
        description = await self._describe(asked.run)
        with _translated(asked.run):
            return dict(await description.memo())

    async def _list(self, asked: r.ListRuns) -> r.RunPage:
        found = self._client.list_workflows(asked.query, page_size=asked.size, next_page_token=asked.next or None)
        with _translated():
            await found.fetch_next_page()
        runs = [await listed(execution) for execution in found.current_page or ()]
        return r.RunPage(tuple(runs), found.next_page_token or b"")

    async def _drivers(self, asked: r.CountDrivers) -> int:
        with _translated():
            kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
            return await drivers(self._client, asked.queue, kind, _ANSWER, asked.but)

    async def _end(self, asked: r.AwaitEnd) -> RunEnd:
        run = asked.run
        first = _first_execution(await self._describe(run))
        try:
            with _translated(run):
                result = await self._handle(run).result()
        except WorkflowFailureError as error:
            view = await self._view(r.ViewRun(run))
            return RunEnd(view.state, failure=failure_of(error))
        made = result["execution"]
        if made != first and made != _first_execution(await self._describe(run)):  # another run may have taken the id
            raise CorruptError(f"the result of run {run} is that of another execution", _FORGED)
        return RunEnd("succeeded", result["outputs"], tuple(result["skipped"]))

    async def _cancel(self, asked: r.CancelRun) -> None:
        with _translated(asked.run):
            await self._handle(asked.run).cancel(reason=asked.reason)

    async def _terminate(self, asked: r.TerminateRun) -> None:
        with _translated(asked.run):
            await self._handle(asked.run).terminate(reason=asked.reason)

    async def _steer(self, asked: r.SteerRun) -> None:
        run = asked.run
        for attempt in range(_STEERING_ATTEMPTS):
            execution = (await self._describe(run)).run_id
            request = Steering(asked.action, execution, uuid4().hex, stage=asked.stage, concurrency=asked.concurrency)
            refusal = await self._steered(run, request)
            if refusal is None:
                return
            if refusal.type != messages.STALE or attempt == _STEERING_ATTEMPTS - 1:
                raise UsageError(f"run {run}: {refusal.message}", "See: treadle show " + run)

    async def _steered(self, run: str, request: Steering) -> ApplicationError | None:
        """The error with which the run rejects the request; None: it was carried out."""
        try:
            with _translated(run):
                await self._handle(run).execute_update(messages.STEER, request, id=request.id, rpc_timeout=_ANSWER)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError):
                return error.cause
            raise UsageError(f"run {run}: {error.cause}", "See: treadle show " + run) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            text = f"no driver answers for run {run}"
            raise Unreachable(text, "Start one: treadle worker. See: treadle doctor") from error
        return None

    def _handle(self, run: str) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(run)

    async def _describe(self, run: str) -> WorkflowExecutionDescription:
        with _translated(run):
            return await self._handle(run).describe()

    async def _paused(self, run: str, description: WorkflowExecutionDescription) -> bool:
        pending = description.raw_description.pending_activities
        stopping = any(one.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED for one in pending)
        if description.status != WorkflowExecutionStatus.RUNNING or (pending and not stopping):
            return False
        try:
            return bool(await self._handle(run).query("paused", rpc_timeout=timedelta(seconds=1)))
        except Exception:  # noqa: BLE001  # no driver answers: the run counts as running
            return False


def _first_execution(description: WorkflowExecutionDescription) -> str:
    """Id of the first execution. A run consists of several if its history was cut."""
    return description.raw_description.workflow_execution_info.first_run_id or description.run_id


class _translated:
    """Converts Temporal's RPC errors."""

    def __init__(self, run: str = "") -> None:
        self._run = run

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RefusedMessage):
            raise CorruptError(f"run {self._run}: {error.message}", _FORGED) from error
        if not isinstance(error, RPCError):
            return
        if error.status == RPCStatusCode.NOT_FOUND:
            raise r.NoSuchRun.named(self._run) from error
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            text = f"Temporal does not answer: {error.message}"
            raise Unreachable(text, "The run, if any, goes on; try again. See: treadle doctor") from error
        text = f"Temporal refuses: {error.status.name.lower().replace('_', ' ')}: {error.message}"
        raise Unreachable(text, "See: treadle doctor") from error


async def view_of(description: WorkflowExecutionDescription, paused: bool) -> RunView:
    """The run including its running nodes."""
    known = await listed(description)
    nodes = [await _node(description, pending) for pending in description.raw_description.pending_activities]
    return msgspec.structs.replace(known, state="paused" if paused else known.state, nodes=tuple(nodes))


async def listed(execution: WorkflowExecution) -> RunView:
    """A run from a listing, without its running nodes."""
    memo = await _memo(execution)
    return RunView(
        execution.id,
        memo.get("workflow", FOREIGN),
        STATES[execution.status or WorkflowExecutionStatus.RUNNING],
        execution.start_time,
        execution.close_time,
        memo.get("resumption", 1),
        (),
        execution.history_length,
        _due(execution),
        memo.get("labels", {}),
        execution.task_queue,
    )


async def _memo(execution: WorkflowExecution) -> Mapping[str, Any]:
    try:
        return await execution.memo()
    except RefusedMessage:
        return {}


def _due(execution: WorkflowExecution) -> datetime | None:
    due = execution.execution_time
    waits = execution.status == WorkflowExecutionStatus.RUNNING and due is not None and due > datetime.now(UTC)
    return due if waits else None


async def _node(description: WorkflowExecutionDescription, pending: Any) -> NodeView:
    converter = description.data_converter.with_context(activity_context(description, pending))
    failure = await converter.decode_failure(pending.last_failure) if pending.HasField("last_failure") else None
    said = failure.message if isinstance(failure, FailureError) else ""
    try:
        details = await converter.decode_wrapper(pending.heartbeat_details)
    except RefusedMessage as refused:
        return NodeView("", pending.attempt, (), "", refused.message)
    if not details:
        return NodeView("", pending.attempt, (), "", said)
    node, progress, iteration = details
    reports = msgspec.convert(progress, tuple[Progress, ...])
    return NodeView(node, pending.attempt, reports, iteration, said)


def failure_of(error: WorkflowFailureError) -> RunFailure | None:
    cause: BaseException | None = error.cause
    if not isinstance(cause, ApplicationError):
        return None
    known = cause.details[0] if cause.details else {}
    about = (str(known.get(key, "")) for key in ("node", "details", "run"))
    return RunFailure(cause.type or "internal", cause.message, *about)
