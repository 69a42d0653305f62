"""The Schedules for deployed triggers, and the necessary changes. Pure: no client, no clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

from msgspec import Struct
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)

from treadle.dsl.triggers import ScheduleTrigger

from ..run_ids import label
from .tick_workflow import TICK, Tick

OVERLAPS = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "bufferOne": ScheduleOverlapPolicy.BUFFER_ONE,
    "bufferAll": ScheduleOverlapPolicy.BUFFER_ALL,
    "cancelOther": ScheduleOverlapPolicy.CANCEL_OTHER,
    "terminateOther": ScheduleOverlapPolicy.TERMINATE_OTHER,
    "allowAll": ScheduleOverlapPolicy.ALLOW_ALL,
}


class Wanted(Struct, frozen=True):
    """A Schedule that should exist."""

    workflow: str
    trigger: str
    settings: ScheduleTrigger
    paused: bool = False

    @property
    def id(self) -> str:
        return label(self.workflow, self.trigger)

    @property
    def asked(self) -> str:
        """Digest of the settings from which the Schedule is made; `with` is excluded, because each tick reads it."""
        text = self.settings.model_dump_json(exclude={"with_", "description"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Found(Struct, frozen=True):
    """An existing Schedule of ours."""

    id: str
    asked: str
    paused: bool


class ScheduleChange(Struct, frozen=True):
    """A change of one Schedule."""

    schedule: str
    did: Literal["created", "updated", "paused", "unpaused", "deleted"]


def changes(wanted: Iterable[Wanted], found: Iterable[Found]) -> list[ScheduleChange]:
    """The changes from the existing Schedules to the desired ones, by id."""
    there = {one.id: one for one in found}
    asked = {one.id: one for one in wanted}
    made = [ScheduleChange(id_, did) for id_, one in asked.items() if (did := _did(one, there.get(id_)))]
    gone = [ScheduleChange(id_, "deleted") for id_ in there if id_ not in asked]
    return sorted([*made, *gone], key=lambda change: change.schedule)


def _did(wanted: Wanted, found: Found | None) -> Literal["created", "updated", "paused", "unpaused"] | None:
    if found is None:
        return "created"
    if found.asked != wanted.asked:
        return "updated"
    if found.paused != wanted.paused:
        return "paused" if wanted.paused else "unpaused"
    return None


def schedule(wanted: Wanted, queue: str, owner: str) -> Schedule:
    """The Schedule for Temporal. The workflow of a tick is named after the Schedule; the server adds the nominal
    time."""
    settings = wanted.settings
    action = ScheduleActionStartWorkflow(
        TICK,
        Tick(wanted.workflow, wanted.trigger, owner, wanted.asked),
        id=f"{wanted.id}.tick",
        task_queue=queue,
        static_summary=wanted.id,
    )
    policy = SchedulePolicy(
        overlap=OVERLAPS[settings.overlap], catchup_window=timedelta(seconds=settings.catchup_window)
    )
    state = ScheduleState(paused=wanted.paused, note="kept by treadle: change it with treadle deploy, trigger pause")
    return Schedule(action=action, spec=_spec(settings), policy=policy, state=state)


def _spec(settings: ScheduleTrigger) -> ScheduleSpec:
    crons = [settings.cron] if isinstance(settings.cron, str) else list(settings.cron or [])
    intervals = []
    if settings.interval is not None:
        every, offset = timedelta(seconds=settings.interval), timedelta(seconds=settings.offset or 0)
        intervals.append(ScheduleIntervalSpec(every=every, offset=offset))
    jitter = None if settings.jitter is None else timedelta(seconds=settings.jitter)
    return ScheduleSpec(cron_expressions=crons, intervals=intervals, jitter=jitter, time_zone_name=settings.timezone)
