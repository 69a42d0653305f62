"""Makes Temporal's Schedules match the deployed triggers, and backfills missed times."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleBackfill,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleListActionStartWorkflow,
    ScheduleUpdate,
)
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode

from treadle.dsl.triggers import ScheduleTrigger
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.protocol.encryption import RefusedMessage
from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

from ..registry.registry import Registry
from ..run_ids import label
from .desired_schedules import OVERLAPS, Found, ScheduleChange, Wanted, changes, schedule
from .tick_workflow import TICK, Tick

Overlap = Literal["skip", "bufferOne", "bufferAll", "cancelOther", "terminateOther", "allowAll"]


class ScheduleView(Struct, frozen=True):
    """A Schedule as reported by Temporal."""

    paused: bool
    next: tuple[datetime, ...]
    recent: tuple[tuple[datetime, str], ...]
    """Nominal times and workflow ids of the last ticks."""
    running: int
    skipped: int
    """Ticks skipped because of `overlap`."""
    missed: int
    """Ticks that were older than `catchupWindow` when the server could have started them."""
    started: int
    """Ticks started since the Schedule was created."""


class Schedules:
    """The Schedules of one deployment key in one namespace, whose ticks go to one queue."""

    def __init__(self, client: Client, queue: str, key: bytes) -> None:
        self._client, self._queue = client, queue
        self._owner = sealing.purpose_key(key, b"treadle schedules")[:8].hex()

    async def reconcile(self, registry: Registry) -> list[ScheduleChange]:
        """Reconcile all Schedules; return the changes. Raises Unreachable; UsageError when a Schedule of that name
        belongs to another deployment, after all others are reconciled."""
        done = await self.sweep(registry)
        refused: list[UsageError] = []
        for one in await asyncio.to_thread(_wanted, registry):
            try:
                done += await self.keep(one)
            except UsageError as error:
                refused.append(error)
        if refused:
            raise refused[0]
        return sorted(done, key=lambda change: change.schedule)

    async def sweep(self, registry: Registry) -> list[ScheduleChange]:
        """Remove the Schedules of removed triggers. Raises Unreachable."""
        with _translated():
            # Listed before the registry is read: a concurrent deployment writes to the registry before it creates the
            # Schedule.
            listed = {id_ async for id_ in self._listed()}
            wanted = {one.id for one in await asyncio.to_thread(_wanted, registry)}
            return await self._make_so({}, listed - wanted)

    async def keep(self, wanted: Wanted) -> list[ScheduleChange]:
        """Reconcile the Schedule of one trigger, independently of others. Raises as `reconcile`."""
        with _translated():
            return await self._make_so({wanted.id: wanted}, [wanted.id])

    async def backfill(
        self, workflow: str, trigger: str, start: datetime, end: datetime, overlap: Overlap = "bufferAll"
    ) -> None:
        """Request a tick for every nominal time from `start` to `end`, both included. A time that has a run gets no
        second one.

        The server makes the ticks, as slowly as `overlap` requires. With `jitter` it omits a time that would be moved
        beyond `end`. Raises Unreachable, and UsageError also if the range contains no time.
        """
        id_ = label(workflow, trigger)
        # The API documents that the start of the range is excluded, and that this may change; ticks are at whole
        # seconds. The range is in UTC, because in other timezones the time before may be skipped or occur twice.
        start, end = start.astimezone(UTC) - timedelta(milliseconds=1), end.astimezone(UTC)
        with _translated(id_):
            if not await self._times(id_, start, end):
                raise UsageError(f"{id_} has no time in that range", "Choose another. See: treadle trigger show " + id_)
            handle = self._client.get_schedule_handle(id_)
            await handle.backfill(ScheduleBackfill(start, end, overlap=OVERLAPS[overlap]))

    async def taken(self, workflow: str, trigger: str, nominals: Sequence[datetime]) -> list[datetime]:
        """The given times for which the server makes ticks, in order. Raises UsageError, Unreachable.

        The server counts from one time to the next, so the query starts a day earlier.
        """
        id_ = label(workflow, trigger)
        with _translated(id_):
            times = await self._times(
                id_, nominals[0].astimezone(UTC) - timedelta(days=1), nominals[-1].astimezone(UTC)
            )
        return [one for one in nominals if one.astimezone(UTC) in times]

    async def view(self, workflow: str, trigger: str) -> ScheduleView:
        """Raises UsageError when the Schedule does not exist, Unreachable."""
        with _translated(label(workflow, trigger)):
            description = await self._client.get_schedule_handle(label(workflow, trigger)).describe()
        info = description.info
        recent = [
            (one.scheduled_at, one.action.workflow_id)
            for one in info.recent_actions
            if isinstance(one.action, ScheduleActionExecutionStartWorkflow)
        ]
        return ScheduleView(
            description.schedule.state.paused,
            tuple(info.next_action_times),
            tuple(recent),
            len(info.running_actions),
            info.num_actions_skipped_overlap,
            info.num_actions_missed_catchup_window,
            info.num_actions,
        )

    # -- helpers

    async def _times(self, id_: str, start: datetime, end: datetime) -> list[datetime]:
        request = ListScheduleMatchingTimesRequest(namespace=self._client.namespace, schedule_id=id_)
        request.start_time.FromDatetime(start)
        request.end_time.FromDatetime(end)
        found = await self._client.workflow_service.list_schedule_matching_times(request)
        return [one.ToDatetime(UTC) for one in found.start_time]

    async def _make_so(self, wanted: Mapping[str, Wanted], ids: Iterable[str]) -> list[ScheduleChange]:
        found = [one for id_ in sorted(ids) if (one := await self._found(id_, id_ in wanted))]
        todo = changes(wanted.values(), found)
        for change in todo:
            await self._carry_out(change, wanted.get(change.schedule))
        return todo

    async def _listed(self) -> AsyncIterator[str]:
        """A listing lags, so it is only used to find surplus Schedules."""
        async for one in await self._client.list_schedules():
            action = one.schedule.action if one.schedule else None
            if isinstance(action, ScheduleListActionStartWorkflow) and action.workflow == TICK:
                yield one.id

    async def _found(self, id_: str, wanted: bool) -> Found | None:
        try:
            description = await self._client.get_schedule_handle(id_).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        tick, queue = await self._tick(description)
        if tick is not None and tick.owner == self._owner and (wanted or queue == self._queue):
            # On another queue no driver of ours would run its ticks.
            asked = tick.asked if queue == self._queue else ""
            return Found(id_, asked, description.schedule.state.paused)
        if wanted:
            raise UsageError(
                f"namespace {self._client.namespace} has a Schedule {id_!r} that another deployment made",
                "Give the workflow or the trigger another name, or use another namespace.",
            )
        return None

    async def _tick(self, description: ScheduleDescription) -> tuple[Tick | None, str]:
        """The workflow argument and the queue of the Schedule; None: it is not one of ours."""
        action = description.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow) or action.workflow != TICK or not action.args:
            return None, ""
        context = WorkflowSerializationContext(self._client.namespace, action.id)
        try:
            (found,) = await self._client.data_converter.with_context(context).decode(action.args[:1], [Tick])
        except RefusedMessage:  # of a deployment with another key
            return None, action.task_queue
        return found if isinstance(found, Tick) else None, action.task_queue

    async def _carry_out(self, change: ScheduleChange, wanted: Wanted | None) -> None:
        handle = self._client.get_schedule_handle(change.schedule)
        if wanted is None:
            await _delete(handle)
            return
        made = schedule(wanted, self._queue, self._owner)
        if change.did == "created":
            # Another process may have created it at the same time, from the same registry.
            with contextlib.suppress(ScheduleAlreadyRunningError):
                await self._client.create_schedule(change.schedule, made)
            return
        await handle.update(lambda _: ScheduleUpdate(made))


async def _delete(handle: ScheduleHandle) -> None:
    try:
        await handle.delete()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:  # another process was faster
            raise


def _wanted(registry: Registry) -> list[Wanted]:
    return [
        Wanted(one.workflow, name, trigger, name in registry.paused(one.workflow))
        for one in registry.deployments()
        for name, trigger in one.spec.triggers.items()
        if isinstance(trigger, ScheduleTrigger)
    ]


@contextlib.contextmanager
def _translated(id_: str = "") -> Iterator[None]:
    try:
        yield
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND and id_:
            hint = "Deploy the workflow, or see: treadle trigger list"
            raise UsageError(f"Temporal has no Schedule {id_}", hint) from error
        text = f"Temporal does not do it: {error.status.name.lower().replace('_', ' ')}: {error.message}"
        raise Unreachable(text, "Try again. See: treadle doctor") from error
