"""Operations on runs: start, view, wait, resume, stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from treadle.orchestrator.dispatcher.orders import Assumption
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.protocol import messages
from treadle.orchestrator.protocol.driver_count import drivers
from treadle.orchestrator.protocol.encryption import RefusedMessage
from treadle.orchestrator.protocol.messages import TRIGGER, RunStart, Steering
from treadle.orchestrator.run_store.run_files import RunFiles, Submission, digest, same_workflow
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, MissingError, TreadleError, UsageError
from treadle.primitives.run_paths import parent_run
from treadle.primitives.stores.store import Store

from .garbage_collection import remove
from .run_views import RunEnd, RunView, State, failure_of, listed, view_of

if TYPE_CHECKING:
    from .submission import Prepared

ALL = f"WorkflowType = '{messages.WORKFLOW}'"
_ANSWER = timedelta(seconds=10)
_STEERING_ATTEMPTS = 3
"""A run that cuts its history continues as another execution, which rejects requests made for the previous one."""
_FORGED = "Somebody else can write to Temporal: see SECURITY.md. If you changed the key, keep the former one in keys/."
_LET_GO = 4.0
"""Seconds after which every living driver has stopped working on a terminated run: it learns of that by a heartbeat."""


class NoSuchRun(TreadleError):
    """No run has that id."""


class RunConflict(TreadleError):
    """The id belongs to a run of another workflow, other inputs or other code."""


class Runs:
    """The runs of one environment."""

    def __init__(self, client: Client, store: Store, key: bytes, queue: str) -> None:
        self._client, self.store, self._key, self._queue = client, store, key, queue

    def files(self, run: str) -> RunFiles:
        return RunFiles(self.store, run, sealing.run_key(self._key, run))

    # -- starting

    async def submit(
        self,
        prepared: Prepared,
        *,
        if_exists: Literal["fail", "use", "terminate"] = "fail",
        start_delay: timedelta | None = None,
    ) -> bool:
        """Start the run; False when `use` found an existing one. Raises RunConflict, Unreachable."""
        run = prepared.submission.run
        if not await self._claim_id(prepared, if_exists):
            return False
        start = RunStart(run, digest(prepared.submission))
        try:
            await self._start(start, prepared.submission, WorkflowIDReusePolicy.ALLOW_DUPLICATE, start_delay)
        except WorkflowAlreadyStartedError as error:
            if if_exists == "use":
                return False
            raise RunConflict(f"run {run} exists already", "Choose another --id, or --if-exists use.") from error
        return True

    async def start_once(self, submission: Submission) -> tuple[bool, dict[str, Any]]:
        """Start a run for an event, at most once, however often it is requested.

        Only the first submission written under the id runs. Returns whether this call started it, and the memo of the
        accepted start. Raises StoreError, and Unreachable when the result is unknown.
        """
        kept = await asyncio.to_thread(keep, self.files(submission.run), submission)
        start = RunStart(kept.run, digest(kept))
        try:
            await self._start(start, kept, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            description = await self._describe(submission.run)
            with _translated(submission.run):
                return False, dict(await description.memo())
        return True, kept.memo

    async def _claim_id(self, prepared: Prepared, if_exists: str) -> bool:
        """Write the run's submission. False: the run exists, open or ended, and shall be used."""
        run = prepared.submission.run
        files = self.files(run)
        known = await asyncio.to_thread(files.find, Submission, "spec")
        # Checked before Temporal: a concurrent submission may start its run at any moment.
        remains = known is not None and await asyncio.to_thread(_is_of_before, files, known, prepared.submission)
        if known is not None and await self.exists(run):
            if not _may_replace(known, prepared.submission, if_exists):
                return False
            await self._end(run)
            remains = True
        if remains:
            await asyncio.to_thread(remove, self.store, run)
        await asyncio.to_thread(_write, files, prepared)
        return True

    async def _end(self, run: str) -> None:
        """Terminate the run if it is open, and wait until its drivers have stopped: otherwise they would continue to
        write."""
        view = await self.view(run)
        if view.open:
            await self.terminate(run, "another run takes the id")
            await asyncio.sleep(0 if view.due else _LET_GO)

    async def exists(self, run: str) -> bool:
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
        delay: timedelta | None = None,
        queue: str = "",
    ) -> None:
        with _translated():
            await self._client.start_workflow(
                messages.WORKFLOW,
                start,
                id=start.run,
                task_queue=queue or self._queue,
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                start_delay=delay,
                memo=memo(submission, start.resumption),
                search_attributes=search_attributes(submission),
                static_summary=submission.spec["name"],
            )

    async def resume(self, run: str, *, assume: Assumption = "", only: Sequence[str] = (), queue: str = "") -> bool:
        """Resume a run that failed, was cancelled or timed out: same id, next resumption; optionally with some nodes
        only.

        `queue`: that of another environment, whose driver serves the run. Returns False when the run is open (and only
        needs a driver), or has succeeded. Raises UsageError for a child run.
        """
        if parent_run(run):
            hint = f"The run that it belongs to goes on with it: treadle resume {run.partition('/')[0]}"
            raise UsageError(f"run {run} is a part of run {parent_run(run)}", hint)
        view = await self.view(run)
        if view.state in ("running", "paused", "succeeded"):
            return False
        submission = await self.submission(run)
        start = RunStart(run, digest(submission), view.resumption + 1, assume, only=list(only))
        try:
            await self._start(start, submission, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY, queue=queue)
        except WorkflowAlreadyStartedError:  # another process was faster
            return False
        return True

    # -- viewing

    async def submission(self, run: str) -> Submission:
        """Raises NoSuchRun; CorruptError for a submission that this deployment did not write."""
        try:
            return await asyncio.to_thread(self.files(run).load, Submission, "spec")
        except MissingError as error:
            raise NoSuchRun(f"there is no run {run} in this store", "See: treadle list") from error

    async def view(self, run: str) -> RunView:
        description = await self._describe(run)
        return await view_of(description, await self._paused(run, description))

    async def list_runs(
        self,
        limit: int = 50,
        *,
        states: tuple[State, ...] = (),
        since: datetime | None = None,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RunView]:
        """Newest first, each run once, in its last resumption. `prefix` filters by id; `labels` must all match.

        Child runs are omitted, unless the prefix selects them: `nightly/`.
        """
        query = f"{ALL} AND StartTime >= '{since.isoformat()}'" if since else ALL
        query += f" AND WorkflowId STARTS_WITH '{prefix}'" if prefix else ""
        seen: set[str] = set()
        async for view in self.executions(query):
            if not view.run.startswith(prefix):  # Temporal's SQLite compares case-insensitively
                continue
            if view.run in seen or len(seen) > 100_000 or (parent_run(view.run) and "/" not in prefix):
                continue
            seen.add(view.run)
            if (not states or view.state in states) and (labels or {}).items() <= view.labels.items():
                yield view
                limit -= 1
            if not limit:
                return

    async def executions(self, query: str) -> AsyncIterator[RunView]:
        """The executions that Temporal lists for the query. Raises Unreachable."""
        with _translated():
            async for execution in self._client.list_workflows(query):
                yield await listed(execution)

    async def drivers(self, but: str = "", queue: str = "") -> int:
        """Number of processes that polled this queue within the last minute, except those with the identity `but`.

        `queue`: another queue than that of this environment.
        """
        with _translated():
            return await drivers(
                self._client, queue or self._queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, _ANSWER, but
            )

    async def end(self, run: str) -> RunEnd:
        """Wait for the end of the run; return its result. Raises CorruptError for a result of another execution."""
        first = _first_execution(await self._describe(run))
        handle = self._client.get_workflow_handle(run)
        try:
            with _translated(run):
                result = await handle.result()
        except WorkflowFailureError as error:
            view = await self.view(run)
            return RunEnd(view.state, failure=failure_of(error))
        made = result["execution"]
        if made != first and made != _first_execution(await self._describe(run)):  # another run may have taken the id
            raise CorruptError(f"the result of run {run} is that of another execution", _FORGED)
        return RunEnd("succeeded", result["outputs"], tuple(result["skipped"]))

    # -- steering

    async def cancel(self, run: str, reason: str = "") -> None:
        """Ask the run to stop; a driver must carry it out."""
        with _translated(run):
            await self._client.get_workflow_handle(run).cancel(reason=reason)

    async def terminate(self, run: str, reason: str = "") -> None:
        """End the run at once, without a driver."""
        with _translated(run):
            await self._client.get_workflow_handle(run).terminate(reason=reason or "treadle terminate")

    async def steer(
        self, run: str, action: Literal["pause", "unpause", "limit"], stage: str = "", concurrency: int = 0
    ) -> None:
        """Pause, unpause or limit. Raises UsageError when the run rejects the request, Unreachable when no driver
        answers."""
        for attempt in range(_STEERING_ATTEMPTS):
            execution = (await self._describe(run)).run_id
            request = Steering(action, execution, uuid4().hex, stage=stage, concurrency=concurrency)
            refusal = await self._steered(run, request)
            if refusal is None:
                return
            if refusal.type != messages.STALE or attempt == _STEERING_ATTEMPTS - 1:
                raise UsageError(f"run {run}: {refusal.message}", "See: treadle show " + run)

    async def _steered(self, run: str, request: Steering) -> ApplicationError | None:
        """The error with which the run rejects the request; None: it was carried out."""
        handle = self._client.get_workflow_handle(run)
        try:
            with _translated(run):
                await handle.execute_update(messages.STEER, request, id=request.id, rpc_timeout=_ANSWER)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError):
                return error.cause
            raise UsageError(f"run {run}: {error.cause}", "See: treadle show " + run) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            text = f"no driver answers for run {run}"
            raise Unreachable(text, "Start one: treadle worker. See: treadle doctor") from error
        return None

    # -- helpers

    async def _describe(self, run: str) -> WorkflowExecutionDescription:
        with _translated(run):
            return await self._client.get_workflow_handle(run).describe()

    async def _paused(self, run: str, description: WorkflowExecutionDescription) -> bool:
        pending = description.raw_description.pending_activities
        stopping = any(one.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED for one in pending)
        if description.status != WorkflowExecutionStatus.RUNNING or (pending and not stopping):
            return False
        handle = self._client.get_workflow_handle(run)
        try:
            return bool(await handle.query("paused", rpc_timeout=timedelta(seconds=1)))
        except Exception:  # noqa: BLE001  # no driver answers: the run counts as running
            return False


def _first_execution(description: WorkflowExecutionDescription) -> str:
    """Id of the first execution. A run consists of several if its history was cut."""
    return description.raw_description.workflow_execution_info.first_run_id or description.run_id


def memo(submission: Submission, resumption: int = 1) -> dict[str, Any]:
    """Data of a run in a listing, besides its state."""
    spec = submission.spec
    labels = {"labels": spec["labels"]} if spec.get("labels") else {}
    return {**submission.memo, "workflow": spec["name"], "resumption": resumption, **labels}


def search_attributes(submission: Submission) -> TypedSearchAttributes:
    """Attributes by which a run is found in Temporal's listing."""
    trigger = submission.memo.get("trigger")
    return TypedSearchAttributes([SearchAttributePair(TRIGGER, trigger)] if trigger else [])


def keep(files: RunFiles, submission: Submission) -> Submission:
    """Write the run's submission, unless one exists; return the existing or new one. Its code is shared. Raises
    StoreError."""
    known = files.find(Submission, "spec")
    if known is not None:
        return known
    return submission if files.create("spec", submission) else files.load(Submission, "spec")


def _may_replace(known: Submission, new: Submission, if_exists: str) -> bool:
    """False: the existing run with this id shall be used. Raises RunConflict."""
    difference = same_workflow(known, new)
    if difference and if_exists != "terminate":
        raise RunConflict(
            f"run {known.run} exists, and {difference} differ{'' if ' and ' in difference else 's'}",
            "Choose another --id; or resume the run as it was submitted.",
        )
    if if_exists == "fail":
        raise RunConflict(f"run {known.run} exists already", "Choose another --id, or --if-exists use.")
    return if_exists == "terminate"


def _is_of_before(files: RunFiles, known: Submission, new: Submission) -> bool:
    """Whether the objects under the id belong to another run, or to one that has begun. If neither, another process may
    be about to start it."""
    names = (info.name.removeprefix(f"{files.prefix}/") for info in files.store.list(files.prefix))
    return digest(known) != digest(new) or not all(name.startswith(("spec", "bundle", "events/")) for name in names)


def _write(files: RunFiles, prepared: Prepared) -> None:
    """Raises RunConflict when another process has just written another run under the id."""
    submission = prepared.submission
    if prepared.again is not None:
        from treadle.orchestrator.run_store.child_runs import hand_over

        hand_over(prepared.again, files, submission.inputs)
    if not files.create("spec", submission) and digest(files.load(Submission, "spec")) != digest(submission):
        raise RunConflict(f"another run {files.run} is being submitted at this moment", "Choose another --id.")
    if prepared.bundle and submission.shared is None:
        files.create_bytes("bundle", prepared.bundle)


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
            raise NoSuchRun(f"there is no run {self._run}", "See: treadle list") from error
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            text = f"Temporal does not answer: {error.message}"
            raise Unreachable(text, "The run, if any, goes on; try again. See: treadle doctor") from error
        text = f"Temporal refuses: {error.status.name.lower().replace('_', ' ')}: {error.message}"
        raise Unreachable(text, "See: treadle doctor") from error
