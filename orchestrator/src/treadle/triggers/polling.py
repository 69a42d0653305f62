"""A trigger that polls repeatedly, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import TreadleError

from .registry.deployment import Deployment
from .trigger_runner import State, TriggerSite, TriggerStatus

_log = logging.getLogger("treadle.triggers")
AGAIN = 5.0
"""Maximum seconds until the next round after an error."""


class PollingRunner(ABC):
    """A TriggerRunner that polls at an interval, and at once after a new version or a pause. It handles its own
    errors."""

    _deployment: Deployment
    """The newest version."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        self._site, self._workflow, self._name = site, workflow, trigger
        self._paused = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._state: State = "starting"
        self._error = ""

    @property
    @abstractmethod
    def every(self) -> float:
        """Seconds between two rounds."""

    @abstractmethod
    async def look(self) -> State:
        """One round with the newest version; returns the resulting state. Raises TreadleError for an early retry."""

    @abstractmethod
    def status(self) -> TriggerStatus: ...

    async def start(self) -> None:
        self._task = spawn(self._run())

    async def update(self, deployment: Deployment, paused: bool) -> None:
        if self._task is None or (deployment, paused) != (self._deployment, self._paused):
            self._deployment, self._paused = deployment, paused
            self._changed.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._state = "stopped"

    def _status(
        self, started: int = 0, dead: int = 0, active: int | None = None, lag: int | None = None
    ) -> TriggerStatus:
        about = (self._workflow, self._name, self._deployment.spec.triggers[self._name].type, self._deployment.version)
        return TriggerStatus(*about, self._state, started, dead, active, lag, self._error, time.time())

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            pause = await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _look(self) -> float:
        """Run one round; return the seconds until the next."""
        try:
            self._state, self._error = await self.look(), ""
        except TreadleError as error:
            self._state, self._error = "failing", str(error)
            return min(self.every, AGAIN)
        except Exception as defect:  # noqa: BLE001  # a defect of one trigger must not end it or others
            self._state, self._error = "failed", f"{type(defect).__name__}: {defect}"
            _log.exception("trigger %s.%s", self._workflow, self._name)
        return self.every
