"""The asyncio client: start runs, wait for them, read their results, steer them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from .connection import ClientConnection

if TYPE_CHECKING:
    import numpy
    import pyarrow

    from treadle.dsl import Workflow
    from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
    from treadle.orchestrator.run_requests.run_views import RunView, State

    from .run_status import RunStatus
    from .stage_checkpoints import StageCheckpoint
    from .stage_data import StageData
    from .submission import Prepared

T = TypeVar("T")
INTERVAL = 0.5
"""Seconds between two looks at a run."""


class AsyncClient:
    """The runs of one environment, for programs on an asyncio event loop.

        async with AsyncClient() as client:
            run = await client.run(wf, {"corpus": "books/*.txt"})
            print(await run.outputs(), await run.stage("count").table())

    It connects when it is first used. On the embedded default it starts Temporal's server, and a driver as soon as a
    run needs it, as `treadle run` does. Use it from one event loop. Every method raises Unreachable when Temporal does
    not answer, StoreError when the store does not, and NoSuchRun for an unknown run.
    """

    def __init__(self, *, profile: str | None = None, home: str | PathLike[str] | None = None) -> None:
        """`profile`: a name in the home's `profiles.toml`; default: `$TREADLE_PROFILE`, or the embedded default.
        `home`: a folder; default: `$TREADLE_HOME`, or `~/.treadle`."""
        self._connection = ClientConnection(profile, home)

    async def __aenter__(self) -> Self:
        await self._connection.runs()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the embedded server and driver end when they are idle. Runs go on. A closed client may be used again."""
        await asyncio.to_thread(self.detach)

    def detach(self) -> None:
        """As `close`, for a process that ends. Blocking."""
        self._connection.close()

    async def submit(
        self,
        workflow: Workflow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        executor: str | None = None,
        if_exists: Literal["fail", "use", "terminate"] = "fail",
        start_delay: timedelta | None = None,
    ) -> AsyncRun:
        """Check, plan and start a run; return as soon as Temporal has it.

        - `workflow`: a Workflow, or the path of a YAML or Python file.
        - `inputs`: values by the names of the workflow's inputs. An input of type `dataset` also takes a list of
          records, a NumPy array, and a table of Arrow, pandas or Polars (docs/client.md).
        - `id`: the run's id; default: made of the workflow's name and the time.
        - `executor`: for the stages that name none; default: that of the profile.
        - `if_exists`: the action when a run has the id: raise RunConflict, return that run, or terminate it first.
        - `start_delay`: time until the run begins.

        Raises InvalidDocument and InvalidInputs with every finding, UsageError for a run that cannot be planned,
        RunConflict.
        """
        await self._connection.runs()
        prepared = await asyncio.to_thread(self._prepare, workflow, inputs or {}, id, executor, start_delay is None)
        await self._connection.start(prepared, if_exists, start_delay)
        return AsyncRun(self, prepared.submission.run)

    async def run(
        self,
        workflow: Workflow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        executor: str | None = None,
        if_exists: Literal["fail", "use", "terminate"] = "fail",
    ) -> AsyncRun:
        """As `submit`, and wait for the end. Raises RunFailed as well.

        A cancelled wait leaves the run as it is: `cancel` ends it.
        """
        run = await self.submit(workflow, inputs, id=id, executor=executor, if_exists=if_exists)
        return await run.wait()

    async def attach(self, run: str) -> AsyncRun:
        """A run that was started before, here or by another process.

        run: its id, the beginning of its id if no other run shares it, `@last`, or a link to it in Temporal's UI.
        """
        from .run_lookup import find_to_read

        return AsyncRun(self, await find_to_read(await self._connection.runs(), run))

    async def list(
        self,
        limit: int = 50,
        *,
        states: Sequence[State] = (),
        since: datetime | None = None,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Sequence[RunView]:
        """Runs, newest first, at most `limit`.

        states: only runs in one of these; since: only runs that started then or later (with a time zone); prefix: only
        runs whose id begins so; labels: only runs with all of these.
        """
        runs = await self._connection.runs()
        found = runs.list_runs(limit, states=tuple(states), since=since, prefix=prefix, labels=labels)
        return [view async for view in found]

    async def show(self, run: str) -> RunStatus:
        """The state of a run and of its stages. Needs no driver."""
        from .run_status import StatusReader

        return await StatusReader(self._connection.environment, await self._connection.runs(), run).read()

    async def watch(self, run: str, interval: float = INTERVAL) -> AsyncIterator[RunStatus]:
        """The status of a run whenever it has changed, at most once in `interval` seconds; the last one has its end."""
        from .run_status import StatusReader

        reader = StatusReader(self._connection.environment, await self._connection.runs(), run)
        last: RunStatus | None = None
        while last is None or last.open:
            now = await reader.read()
            if now != last:
                yield now
            last = now
            await asyncio.sleep(interval if now.open else 0)

    async def result(self, run: str) -> dict[str, Any]:
        """Wait for the end of a run; return the outputs that its workflow declares. Raises RunFailed."""
        from .run_status import failure

        end = await (await self._connection.runs()).end(run)
        if end.state != "succeeded":
            raise await asyncio.to_thread(failure, self._connection.environment, run, end)
        return end.outputs

    async def logs(
        self, run: str, stage: str | None = None, *, partition: int | None = None, attempt: int | None = None
    ) -> Sequence[AttemptRecord]:
        """The records of attempts that printed something or failed, oldest first.

        stage, partition (from 0), attempt (from 1): only these. Raises UsageError for a stage that is not in the run.
        """
        from .attempt_logs import reader

        await (await self._connection.runs()).submission(run)
        return await asyncio.to_thread(
            lambda: reader(self._connection.environment.files(run), stage, partition, attempt)()
        )

    async def resume(self, run: str, *, assume: Literal["done", "retry"] | None = None) -> bool:
        """Go on with a run that failed, was cancelled or timed out, or whose driver is gone. Committed results stay.

        assume: whether attempts with an unknown outcome, of stages with `idempotent: false`, took effect.

        False: the run is open, or it has succeeded. Raises UsageError for a run that another run started.
        """
        from .resumption import have_driver, mend

        runs = await self._connection.runs()
        await mend(self._connection.environment, runs, run)
        view = await runs.view(run)
        queue = await asyncio.to_thread(have_driver, self._connection.environment, view, lambda _: None)
        return await runs.resume(run, assume=assume or "", queue=queue)

    async def cancel(self, run: str, reason: str = "") -> None:
        """Ask a run to stop. A driver ends its attempts; committed results stay, and `resume` goes on with it."""
        await (await self._connection.runs()).cancel(run, reason)

    def _prepare(
        self,
        workflow: Workflow | str | PathLike[str],
        inputs: Mapping[str, Any],
        id: str | None,
        executor: str | None,
        now: bool,
    ) -> Prepared:
        from .documents import load_checked
        from .preparation import check_places, prepare_document
        from .submission import run_id

        loaded = load_checked(Path(workflow) if isinstance(workflow, str | PathLike) else workflow)
        prepared = prepare_document(
            self._connection.environment, loaded, inputs, run_id(id, loaded.spec.name), executor
        )
        if now:
            check_places(prepared)
        return prepared

    def stage_data(self, run: str, stage: str) -> StageData:
        """The records of a stage, for `AsyncStage`. Blocking."""
        from .stage_data import StageData

        return StageData(self._connection.environment, run, stage)

    def stage_checkpoint(self, run: str, stage: str, number: int | None) -> StageCheckpoint:
        """A checkpoint of a stage, for `AsyncStage`. Blocking."""
        from .stage_checkpoints import read_checkpoint

        return read_checkpoint(self._connection.environment.files(run), stage, number)

    def object_of_run(self, run: str, name: str) -> Any:
        """A copy of a shared object, for `AsyncRun`. Blocking."""
        from .object_states import read_object

        return read_object(self._connection.environment, run, name).value


class AsyncRun:
    """A run of a client, by its id. Made by `AsyncClient.submit`, `run` and `attach`."""

    def __init__(self, client: AsyncClient, id: str) -> None:
        self.client, self.id = client, id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def wait(self) -> Self:
        """Wait for the end; return this run. Raises RunFailed, whose cause is the worker's traceback."""
        await self.client.result(self.id)
        return self

    async def outputs(self) -> dict[str, Any]:
        """As `AsyncClient.result`."""
        return await self.client.result(self.id)

    async def show(self) -> RunStatus:
        """As `AsyncClient.show`."""
        return await self.client.show(self.id)

    def watch(self, interval: float = INTERVAL) -> AsyncIterator[RunStatus]:
        """As `AsyncClient.watch`."""
        return self.client.watch(self.id, interval)

    async def logs(
        self, stage: str | None = None, *, partition: int | None = None, attempt: int | None = None
    ) -> Sequence[AttemptRecord]:
        """As `AsyncClient.logs`."""
        return await self.client.logs(self.id, stage, partition=partition, attempt=attempt)

    async def resume(self, *, assume: Literal["done", "retry"] | None = None) -> bool:
        """As `AsyncClient.resume`."""
        return await self.client.resume(self.id, assume=assume)

    async def cancel(self, reason: str = "") -> None:
        """As `AsyncClient.cancel`."""
        await self.client.cancel(self.id, reason)

    def stage(self, name: str) -> AsyncStage:
        """The results of a stage."""
        return AsyncStage(self, name)

    async def object(self, name: str) -> Any:
        """A copy of a shared object of the workflow, as of the last stage that is complete: call its methods. It does
        not wait for the run's end. Raises UsageError for an unknown object, and before its first state is committed.
        """
        return await asyncio.to_thread(self.client.object_of_run, self.id, name)


class AsyncStage:
    """The records of one stage of a run. Methods wait for the run's end, except `checkpoint`; they raise RunFailed, and
    UsageError for a stage that keeps no data, such as one within a loop or one that writes files."""

    def __init__(self, run: AsyncRun, name: str) -> None:
        self.run, self.name = run, name

    async def records(self) -> list[Any]:
        """The records in order: Python objects; dictionaries for the rows of tables; arrays for the rows of arrays."""
        return await self._read(lambda data: list(data.records()))

    async def table(self) -> pyarrow.Table:
        """The records as an Arrow table; `.to_pandas()` makes a data frame. Records that are not of tables must be
        dictionaries, or it raises UsageError."""
        return await self._read(lambda data: data.table())

    async def array(self) -> numpy.ndarray[Any, Any]:
        """The records as a NumPy array with one row for each. Records that are not of arrays must be numbers, or arrays
        of one shape; otherwise it raises UsageError."""
        return await self._read(lambda data: data.array())

    async def checkpoint(self, number: int | None = None) -> StageCheckpoint:
        """The last checkpoint of a gang that is still running, or the one with this number (the last two are kept): the
        states of all its members. Raises UsageError when there is none."""
        return await asyncio.to_thread(self.run.client.stage_checkpoint, self.run.id, self.name, number)

    async def _read(self, read: Callable[[StageData], T]) -> T:
        await self.run.wait()
        return await asyncio.to_thread(lambda: read(self.run.client.stage_data(self.run.id, self.name)))
