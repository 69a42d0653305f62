"""A schedule in the trigger service: it keeps Temporal's Schedule consistent with the registry, and reports its state.

The ticks need no service: Temporal makes them, and any driver runs them. So the Schedule stays when the service ends.
`treadle deploy` and `keep_swept` remove the Schedules of removed triggers.
"""

from __future__ import annotations

import asyncio
import logging

from treadle.dsl.triggers import ScheduleTrigger
from treadle.orchestrator.embedded.python_environments import task_queue
from treadle.primitives.errors import TreadleError

from ..polling import PollingRunner
from ..registry.registry import Registry
from ..trigger_runner import State, TriggerSite, TriggerStatus
from .desired_schedules import Wanted
from .reconcile import Schedules

_log = logging.getLogger("treadle.triggers")
SWEEP_EVERY = 60.0
"""Seconds."""


async def keep_swept(schedules: Schedules, registry: Registry) -> None:
    """Until cancelled: remove the Schedules of removed triggers, which have no runner any more."""
    while True:
        try:
            await schedules.sweep(registry)
        except TreadleError as error:
            _log.warning("Schedules of triggers that are gone: %s", error)
        await asyncio.sleep(SWEEP_EVERY)


class ScheduleRunner(PollingRunner):
    """See TriggerRunner."""

    every = 30.0
    """Seconds after which a Schedule that was removed by hand is created again."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        super().__init__(site, workflow, trigger)
        self._schedules = Schedules(site.client, task_queue(site.home, site.profile.for_commands(site.home)), site.key)
        self._started = 0
        self._active: int | None = None

    def status(self) -> TriggerStatus:
        return self._status(self._started, active=self._active)

    async def look(self) -> State:
        """See PollingRunner. Handles only its own Schedule, so that no trigger waits for another."""
        trigger = self._deployment.spec.triggers[self._name]
        assert isinstance(trigger, ScheduleTrigger)
        await self._schedules.keep(Wanted(self._workflow, self._name, trigger, self._paused))
        view = await self._schedules.view(self._workflow, self._name)
        self._started, self._active = view.started, view.running
        return "paused" if view.paused else "running"
