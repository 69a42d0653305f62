"""The running attempt of a slot that is only a permit: one asyncio task at a time, which can be given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass, InternalError

from ..interface import STOPPED
from ..program import Report, Task
from .failure_classification import failure_of


class Underway:
    """The running attempt of a slot."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._attempt: asyncio.Task[list[Report]] | None = None
        self._name = ""
        self.stopped = False
        """The attempt was given up, and no new one was started."""

    @property
    def busy(self) -> bool:
        return self._attempt is not None

    @property
    def task(self) -> str:
        """See `Slot.task`."""
        return self._name if self._attempt is not None and not self._attempt.done() else ""

    async def run(
        self, task: Task, work: Callable[[Task], Coroutine[Any, Any, list[Report]]], report: Callable[[Report], None]
    ) -> None:
        """See `Slot.run`; `work` returns the reports."""
        if self.busy:
            raise InternalError(f"slot {self._slot} runs a task already")
        self.stopped, self._name = False, task.id
        self._attempt = spawn(work(task), name=f"attempt in {self._slot}")
        try:
            reports = await self._finished(self._attempt, task)
        finally:
            self._attempt = None
        for one in reports:
            report(one)

    async def stop(self) -> None:
        """Give up the running attempt, which is reported as lost."""
        self.stopped = True
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})

    async def _finished(self, attempt: asyncio.Task[list[Report]], task: Task) -> list[Report]:
        try:
            return await attempt
        except asyncio.CancelledError:
            if attempt.cancelled() and self.stopped:
                return [failure_of(task, FailureClass.WORKER_LOST, STOPPED)]
            attempt.cancel()
            await asyncio.wait({attempt})
            raise
