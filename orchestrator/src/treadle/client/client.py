"""Operations on runs: start, view, wait, resume, stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from msgspec import to_builtins

from treadle.orchestrator.dispatcher.orders import Assumption
from treadle.orchestrator.run_requests import requests as r
from treadle.orchestrator.run_requests.requests import NoSuchRun
from treadle.orchestrator.run_requests.run_views import RunEnd, RunView, State
from treadle.orchestrator.run_store.run_files import RunFiles, Submission, digest, same_workflow
from treadle.orchestrator.telemetry.hops import hop
from treadle.primitives import sealing
from treadle.primitives.errors import MissingError, TreadleError, UsageError
from treadle.primitives.run_paths import parent_run
from treadle.primitives.stores.store import Store

from .garbage_collection import remove

if TYPE_CHECKING:
    from .submission import Prepared

ALL = f"WorkflowType = '{r.WORKFLOW}'"
_LET_GO = 4.0
"""Seconds after which every living driver has stopped working on a terminated run: it learns of that by a heartbeat."""
_PAGE = 1000
"""Maximum of executions that are asked for at once."""


class RunConflict(TreadleError):
    """The id belongs to a run of another workflow, other inputs or other code."""


class Runs:
    """The runs of one environment."""

    def __init__(self, service: r.RunService, store: Store, key: bytes, queue: str) -> None:
        self._service, self.store, self._key, self._queue = service, store, key, queue

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
        with hop(run, "write submission"):
            claimed = await self._claim_id(prepared, if_exists)
        if not claimed:
            return False
        delay = start_delay.total_seconds() if start_delay else 0.0
        with hop(run, "start"):
            started = await self._start(prepared.submission, delay=delay)
        if not started and if_exists != "use":
            raise RunConflict(f"run {run} exists already", "Choose another --id, or --if-exists use.")
        return started

    async def start_once(self, submission: Submission) -> tuple[bool, dict[str, Any]]:
        """Start a run for an event, at most once, however often it is requested.

        Only the first submission written under the id runs. Returns whether this call started it, and the memo of the
        accepted start. Raises StoreError, and Unreachable when the result is unknown.
        """
        kept = await asyncio.to_thread(keep, self.files(submission.run), submission)
        if await self._start(kept, after="none"):
            return True, kept.memo
        return False, await self._service.ask(r.ReadMemo(submission.run))

    async def _claim_id(self, prepared: Prepared, if_exists: str) -> bool:
        """Write the run's submission. False: the run exists, open or ended, and shall be used."""
        run = prepared.submission.run
        files = self.files(run)
        if prepared.again is None and await asyncio.to_thread(_write_first, files, prepared):
            return True
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
        return await self._service.ask(r.FindRun(run))

    async def _start(
        self,
        submission: Submission,
        *,
        after: Literal["any", "failed", "none"] = "any",
        delay: float = 0.0,
        queue: str = "",
        **options: Any,
    ) -> bool:
        """False: a run with this id exists already. `options`: fields of RunStart."""
        from treadle.orchestrator.protocol.messages import RunStart

        start = RunStart(submission.run, digest(submission), **options)
        request = r.StartRun(
            start=to_builtins(start),
            workflow=submission.spec["name"],
            queue=queue or self._queue,
            memo=memo(submission, start.resumption),
            trigger=submission.memo.get("trigger") or "",
            after=after,
            delay=delay,
        )
        return await self._service.ask(request)

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
        return await self._start(  # False: another process was faster
            submission, after="failed", queue=queue, resumption=view.resumption + 1, assume=assume, only=list(only)
        )

    # -- viewing

    async def submission(self, run: str) -> Submission:
        """Raises NoSuchRun; CorruptError for a submission that this deployment did not write."""
        try:
            return await asyncio.to_thread(self.files(run).load, Submission, "spec")
        except MissingError as error:
            raise NoSuchRun(f"there is no run {run} in this store", "See: treadle list") from error

    async def view(self, run: str) -> RunView:
        return await self._service.ask(r.ViewRun(run))

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
        async for view in self.executions(query, limit):
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

    async def executions(self, query: str, first: int = _PAGE) -> AsyncIterator[RunView]:
        """The executions that Temporal lists for the query, the `first` ones with one request. Raises Unreachable."""
        page = await self._service.ask(r.ListRuns(query, min(first, _PAGE)))
        while True:
            for view in page.runs:
                yield view
            if not page.next:
                return
            page = await self._service.ask(r.ListRuns(query, _PAGE, page.next))

    async def drivers(self, but: str = "", queue: str = "") -> int:
        """Number of processes that polled this queue within the last minute, except those with the identity `but`.

        `queue`: another queue than that of this environment.
        """
        return await self._service.ask(r.CountDrivers(queue or self._queue, but))

    async def end(self, run: str) -> RunEnd:
        """Wait for the end of the run; return its result. Raises CorruptError for a result of another execution."""
        with hop(run, "wait"):
            return await self._service.ask(r.AwaitEnd(run))

    # -- steering

    async def cancel(self, run: str, reason: str = "") -> None:
        """Ask the run to stop; a driver must carry it out."""
        await self._service.ask(r.CancelRun(run, reason))

    async def terminate(self, run: str, reason: str = "") -> None:
        """End the run at once, without a driver."""
        await self._service.ask(r.TerminateRun(run, reason or "treadle terminate"))

    async def steer(
        self, run: str, action: Literal["pause", "unpause", "limit"], stage: str = "", concurrency: int = 0
    ) -> None:
        """Pause, unpause or limit. Raises UsageError when the run rejects the request, Unreachable when no driver
        answers."""
        await self._service.ask(r.SteerRun(run, action, stage, concurrency))


def memo(submission: Submission, resumption: int = 1) -> dict[str, Any]:
    """Data of a run in a listing, besides its state."""
    spec = submission.spec
    labels = {"labels": spec["labels"]} if spec.get("labels") else {}
    return {**submission.memo, "workflow": spec["name"], "resumption": resumption, **labels}


def keep(files: RunFiles, submission: Submission) -> Submission:
    """Write the run's submission, unless one exists; return the existing or new one. Its code is shared. Raises
    StoreError."""
    return files.find(Submission, "spec") or files.keep("spec", submission)


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
    if _write_first(files, prepared):
        return
    if digest(files.load(Submission, "spec")) != digest(submission):
        raise RunConflict(f"another run {files.run} is being submitted at this moment", "Choose another --id.")
    _write_code(files, prepared)


def _write_first(files: RunFiles, prepared: Prepared) -> bool:
    """Write the submission and its code. False: the store has a submission under the id."""
    is_first = files.create("spec", prepared.submission)
    if is_first:
        _write_code(files, prepared)
    return is_first


def _write_code(files: RunFiles, prepared: Prepared) -> None:
    if prepared.bundle and prepared.submission.shared is None:
        files.create_bytes("bundle", prepared.bundle)
