"""What people and programs do with runs: start, look, wait, resume, stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from treadle.primitives import trust
from treadle.primitives.errors import MissingError, TreadleError, UsageError
from treadle.primitives.store import Store

from . import messages
from .activities import digest
from .messages import RunStart
from .profile_errors import Unreachable
from .runfiles import RunFiles, Submission
from .segment import Progress
from .submission import Prepared, same_workflow

State = Literal["running", "succeeded", "failed", "cancelled", "terminated", "timed out", "paused"]
_STATES: dict[WorkflowExecutionStatus, State] = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.COMPLETED: "succeeded",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "running",
    WorkflowExecutionStatus.TIMED_OUT: "timed out",
}


class NoSuchRun(TreadleError):
    """There is no run of that id."""


class RunConflict(TreadleError):
    """The id belongs to a run of another workflow, other inputs or other code."""


class NodeView(Struct, frozen=True):
    """A node under way, from its activity's heartbeat."""

    node: str
    """Empty until the first heartbeat."""
    attempt: int
    """Of the activity; above 1 when a driver was lost."""
    progress: tuple[Progress, ...]
    iteration: str
    last_failure: str


class RunView(Struct, frozen=True):
    """A run as `describe()` shows it: no driver is needed."""

    run: str
    workflow: str
    state: State
    started: datetime
    closed: datetime | None
    resumption: int
    nodes: tuple[NodeView, ...]
    history_events: int


class RunFailure(Struct, frozen=True):
    """Why a run did not succeed."""

    failure: str
    message: str
    node: str = ""
    details: str = ""


class RunEnd(Struct, frozen=True):
    state: State
    outputs: dict[str, Any] = {}
    skipped: tuple[str, ...] = ()
    failure: RunFailure | None = None


class Runs:
    """The runs of one environment."""

    def __init__(self, client: Client, store: Store, key: bytes, queue: str) -> None:
        self._client, self._store, self._key, self._queue = client, store, key, queue

    @property
    def store(self) -> Store:
        return self._store

    def files(self, run: str) -> RunFiles:
        return RunFiles(self._store, run, trust.run_key(self._key, run))

    # -- starting

    async def submit(
        self,
        prepared: Prepared,
        *,
        if_exists: Literal["fail", "use", "terminate"] = "fail",
        start_delay: timedelta | None = None,
    ) -> bool:
        """Start the run; False when `use` found it there. Raises RunConflict, Unreachable."""
        run = prepared.submission.run
        if not await self._claim_id(prepared, if_exists):
            return False
        start = RunStart(run, digest(prepared.submission))
        conflict = WorkflowIDConflictPolicy.FAIL
        if if_exists == "terminate":
            conflict = WorkflowIDConflictPolicy.TERMINATE_EXISTING
        try:
            await self._start(start, prepared.submission, WorkflowIDReusePolicy.ALLOW_DUPLICATE, conflict, start_delay)
        except WorkflowAlreadyStartedError as error:
            if if_exists == "use":
                return False
            raise RunConflict(f"run {run} exists already", "Choose another --id, or --if-exists use.") from error
        return True

    async def _claim_id(self, prepared: Prepared, if_exists: str) -> bool:
        """Write what the run is made of. False: it is there, running or over, and shall be used."""
        run = prepared.submission.run
        files = self.files(run)
        known = await asyncio.to_thread(files.find, Submission, "spec")
        if known is not None and await self._exists(run):
            difference = same_workflow(known, prepared.submission)
            if difference and if_exists != "terminate":
                raise RunConflict(
                    f"run {run} exists, and {difference} differ{'' if ' and ' in difference else 's'}",
                    "Choose another --id; or resume the run as it was submitted.",
                )
            if if_exists == "fail":
                raise RunConflict(f"run {run} exists already", "Choose another --id, or --if-exists use.")
            if if_exists == "use":
                return False
        if known is not None:
            await self._wipe(files)
        await asyncio.to_thread(_write, files, prepared)
        return True

    async def _wipe(self, files: RunFiles) -> None:
        await asyncio.to_thread(self._store.delete_prefix, f"{files.prefix}/")

    async def _exists(self, run: str) -> bool:
        try:
            await self._describe(run)
        except NoSuchRun:
            return False
        return True

    async def _start(
        self,
        start: RunStart,
        submission: Submission,
        reuse: WorkflowIDReusePolicy,
        conflict: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL,
        delay: timedelta | None = None,
    ) -> None:
        about = {"workflow": submission.spec["name"], "resumption": start.resumption}
        with _translated():
            await self._client.start_workflow(
                messages.WORKFLOW,
                start,
                id=start.run,
                task_queue=self._queue,
                id_reuse_policy=reuse,
                id_conflict_policy=conflict,
                start_delay=delay,
                memo=about,
                static_summary=submission.spec["name"],
            )

    async def resume(self, run: str, *, assume: str = "") -> bool:
        """Go on with a run that failed, was cancelled or timed out: same id, next resumption.

        False when it needs none: it is open (and only needs a driver), or it has succeeded.
        """
        view = await self.view(run)
        if view.state in ("running", "paused", "succeeded"):
            return False
        submission = await self.submission(run)
        start = RunStart(run, digest(submission), view.resumption + 1, assume)
        await self._start(start, submission, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
        return True

    # -- looking

    async def submission(self, run: str) -> Submission:
        """Raises NoSuchRun; CorruptError for one that this deployment did not write."""
        try:
            return await asyncio.to_thread(self.files(run).load, Submission, "spec")
        except MissingError as error:
            raise NoSuchRun(f"there is no run {run} in this store", "See: treadle list") from error

    async def view(self, run: str) -> RunView:
        description = await self._describe(run)
        return await _view(description, await self._paused(run, description))

    async def list_runs(self, limit: int = 50) -> AsyncIterator[RunView]:
        """Newest first."""
        count = 0
        with _translated():
            async for execution in self._client.list_workflows(f"WorkflowType = '{messages.WORKFLOW}'"):
                memo = await execution.memo()
                yield RunView(
                    execution.id,
                    memo.get("workflow", ""),
                    _STATES[execution.status or WorkflowExecutionStatus.RUNNING],
                    execution.start_time,
                    execution.close_time,
                    memo.get("resumption", 1),
                    (),
                    execution.history_length,
                )
                count += 1
                if count == limit:
                    return

    async def end(self, run: str) -> RunEnd:
        """How the run ended; waits for it."""
        handle = self._client.get_workflow_handle(run)
        try:
            with _translated(run):
                result = await handle.result()
        except WorkflowFailureError as error:
            view = await self.view(run)
            return RunEnd(view.state, failure=_failure(error))
        return RunEnd("succeeded", result["outputs"], tuple(result["skipped"]))

    # -- steering

    async def cancel(self, run: str) -> None:
        with _translated(run):
            await self._client.get_workflow_handle(run).cancel()

    async def terminate(self, run: str, reason: str = "") -> None:
        with _translated(run):
            await self._client.get_workflow_handle(run).terminate(reason=reason or "treadle terminate")

    async def update(self, run: str, name: str, *arguments: Any) -> None:
        """Pause, unpause or limit; needs a live driver. Raises UsageError when the run refuses."""
        try:
            with _translated(run):
                await self._client.get_workflow_handle(run).execute_update(name, args=list(arguments))
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            text = cause.message if isinstance(cause, ApplicationError) else str(cause)
            raise UsageError(f"run {run}: {text}", "See: treadle show " + run) from error

    # -- parts

    async def _describe(self, run: str) -> WorkflowExecutionDescription:
        with _translated(run):
            return await self._client.get_workflow_handle(run).describe()

    async def _paused(self, run: str, description: WorkflowExecutionDescription) -> bool:
        if description.status != WorkflowExecutionStatus.RUNNING or description.raw_description.pending_activities:
            return False
        handle = self._client.get_workflow_handle(run)
        try:
            return bool(await handle.query("paused", rpc_timeout=timedelta(seconds=1)))
        except (RPCError, Exception):  # noqa: BLE001  # no driver to ask: then it only counts as running
            return False


def _write(files: RunFiles, prepared: Prepared) -> None:
    if prepared.bundle:
        files.create_bytes("bundle", prepared.bundle)
    files.create("spec", prepared.submission)


async def _view(description: WorkflowExecutionDescription, paused: bool) -> RunView:
    memo = await description.memo()
    state = _STATES[description.status or WorkflowExecutionStatus.RUNNING]
    return RunView(
        description.id,
        memo.get("workflow", ""),
        "paused" if paused else state,
        description.start_time,
        description.close_time,
        memo.get("resumption", 1),
        tuple([await _node(description, pending) for pending in description.raw_description.pending_activities]),
        description.history_length,
    )


async def _node(description: WorkflowExecutionDescription, pending: Any) -> NodeView:
    converter = description.data_converter
    details = await converter.decode(pending.heartbeat_details.payloads) if pending.heartbeat_details.payloads else []
    if not details:
        return NodeView("", pending.attempt, (), "", pending.last_failure.message)
    node, progress, iteration = details
    reports = msgspec.convert(progress, tuple[Progress, ...])
    return NodeView(node, pending.attempt, reports, iteration, pending.last_failure.message)


def _failure(error: WorkflowFailureError) -> RunFailure | None:
    cause: BaseException | None = error.cause
    if not isinstance(cause, ApplicationError):
        return None
    known = cause.details[0] if cause.details else {}
    return RunFailure(
        cause.type or "internal", cause.message, str(known.get("node", "")), str(known.get("details", ""))
    )


class _translated:
    """The border to Temporal's RPC errors."""

    def __init__(self, run: str = "") -> None:
        self._run = run

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RPCError):
            return
        if error.status == RPCStatusCode.NOT_FOUND:
            raise NoSuchRun(f"there is no run {self._run}", "See: treadle list") from error
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED):
            text = f"Temporal does not answer: {error.message}"
            raise Unreachable(text, "The run, if any, goes on; try again. See: treadle doctor") from error
