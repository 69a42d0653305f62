"""A schedule in the trigger service: it keeps Temporal's Schedule as the registry has it, and tells how it does.

The ticks themselves need no service: Temporal makes them, and any driver serves them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from treadle.primitives.errors import TreadleError

from ..registry.deployment import Deployment
from ..running import State, TriggerSite, TriggerStatus
from .reconcile import Schedules

_log = logging.getLogger("treadle.triggers")
LOOK_EVERY = 30.0
"""Seconds after which a Schedule that somebody removed is made again."""
AGAIN = 5.0
"""Seconds until the next try, when Temporal does not answer."""


class ScheduleRunner:
    """See TriggerRunner."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        self._site, self._workflow, self._name = site, workflow, trigger
        self._schedules = Schedules(site.client, site.profile.queue, site.key)
        self._deployment: Deployment | None = None
        self._paused = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._state: State = "starting"
        self._active: int | None = None
        self._error = ""

    async def start(self) -> None:
        """See TriggerRunner."""
        self._task = asyncio.create_task(self._run())

    async def update(self, deployment: Deployment, paused: bool) -> None:
        """See TriggerRunner."""
        if deployment is not self._deployment or paused != self._paused:
            self._deployment, self._paused = deployment, paused
            self._changed.set()

    async def stop(self) -> None:
        """The Schedule stays: it goes on without this process."""
        self._state = "stopped"
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def status(self) -> TriggerStatus:
        """See TriggerRunner."""
        version = self._deployment.version if self._deployment else 0
        about = (self._workflow, self._name, "schedule", version, self._state)
        return TriggerStatus(*about, active=self._active, error=self._error, time=time.time())

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            pause = await self._look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)

    async def _look(self) -> float:
        """Seconds until the next look."""
        try:
            await self._schedules.reconcile(self._site.registry)
            view = await self._schedules.view(self._workflow, self._name)
        except TreadleError as error:
            self._state, self._error = "waiting", str(error)
            _log.warning("%s.%s: %s", self._workflow, self._name, error)
            return AGAIN
        except Exception as defect:  # noqa: BLE001  # one trigger's defect ends neither it nor the others
            self._state, self._error = "failed", f"{type(defect).__name__}: {defect}"
            _log.exception("trigger %s.%s", self._workflow, self._name)
            return LOOK_EVERY
        self._state, self._active, self._error = "paused" if view.paused else "running", view.running, ""
        return LOOK_EVERY
