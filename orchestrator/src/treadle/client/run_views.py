"""Runs as reported by Temporal's `describe()`, listings and results, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from temporalio.client import (
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError, FailureError

from treadle.orchestrator.dispatcher.orders import Progress
from treadle.orchestrator.protocol.encryption import RefusedMessage, activity_context

FOREIGN = "(of another deployment)"
"""The workflow's name of a run whose memo this deployment cannot read."""
State = Literal["running", "succeeded", "failed", "cancelled", "terminated", "timed out", "paused"]
STATES: dict[WorkflowExecutionStatus, State] = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.COMPLETED: "succeeded",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "running",
    WorkflowExecutionStatus.TIMED_OUT: "timed out",
}


class NodeView(Struct, frozen=True):
    """A running node, from its activity's heartbeat."""

    node: str
    """Empty until the first heartbeat."""
    attempt: int
    """Attempt of the activity; above 1 when a driver was lost."""
    progress: tuple[Progress, ...]
    iteration: str
    last_failure: str


class RunView(Struct, frozen=True):
    """A run from `describe()`, which needs no driver."""

    run: str
    workflow: str
    state: State
    started: datetime
    closed: datetime | None
    resumption: int
    nodes: tuple[NodeView, ...]
    history_events: int
    due: datetime | None = None
    """Start time of a delayed run; None: it has started."""
    labels: dict[str, str] = {}
    """Labels of its workflow; a child run has the labels of its parent."""
    queue: str = ""
    """The task queue, which identifies the run's environment in the embedded default."""

    @property
    def open(self) -> bool:
        return self.state in ("running", "paused")


class RunFailure(Struct, frozen=True):
    """Why a run did not succeed."""

    failure: str
    message: str
    node: str = ""
    details: str = ""
    run: str = ""
    """The child run that has the errors; empty: the run itself."""


class RunEnd(Struct, frozen=True):
    state: State
    outputs: dict[str, Any] = {}
    skipped: tuple[str, ...] = ()
    failure: RunFailure | None = None


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
