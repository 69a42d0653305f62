"""A task in a slot, from the offer to the end that its client hears of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from treadle.executors.interface import Slot
from treadle.executors.program import Failure, Report, Task
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass, TreadleError


class Client(Protocol):
    """A segment that wants slots."""

    def together(self) -> int:
        """Slots it takes at once: 1, or all of a gang's; 0 when that is not due."""

    def offer(self, slot: str) -> Task | None:
        """A task for the free slot, or None when there is none now; a gang is offered all its slots in one go."""

    def backup(self, slot: str) -> Task | None:
        """A task that repeats one under way elsewhere, for a slot that no client has anything else for."""

    async def ready(self) -> None:
        """Return when a task just offered may start."""

    def report(self, slot: str, report: Report) -> None:
        """A partition of the slot's task ended."""

    def ended(self, slot: str, error: BaseException | None) -> None:
        """The slot's task is over."""

    def refuse(self, error: TreadleError) -> None:
        """There are too few slots in service for what it wants, and no task of it can begin."""


class SlotRun:
    """Tells its client of reports, and once of the end. Use once: `begin`."""

    def __init__(self, slot: Slot, client: Client, task: Task) -> None:
        self.slot, self.client, self.task = slot, client, task
        self.begun = False
        """The slot was given the task."""
        self.ending = False
        """The slot was told to end the task."""
        self.lost = False
        """The slot has forgotten the task."""
        self.over = asyncio.Event()
        """The client has heard of the end."""
        self._reported = 0
        self._work: asyncio.Task[None]

    def begin(self, ended: Callable[[BaseException | None], None]) -> None:
        """`ended` is called once the slot has let go of the task, with what `Slot.run` raised."""
        self._work = spawn(self._run(), name=f"slot {self.slot.name}")
        self._work.add_done_callback(lambda work: ended(_error_of(work)))

    def cancel(self) -> None:
        """Have the slot end the task. A second cancellation would cut its clean-up short."""
        if not self.ending:
            self.ending = True
            self._work.cancel()

    def lose(self, how: str) -> None:
        """The client need not wait for the slot."""
        self.lost = True
        self.cancel()
        self.tell(None, how)

    def tell(self, error: BaseException | None, how: str = "") -> None:
        """The client hears that the task is over, unless it has heard so already.

        A task that ended by itself without any report, or was lost (`how`), is reported as `worker lost`.
        """
        if self.over.is_set():
            return
        try:
            if error is None and (how or not self._reported):
                error = self._report_lost(how or "its slot ended it without a report")
        finally:
            self.over.set()
            self.client.ended(self.slot.name, error)

    async def _run(self) -> None:
        if not self.ending:
            await self.client.ready()
            self.begun = True
            await self.slot.run(self.task, self._report)

    def _report(self, report: Report) -> None:
        if not self.over.is_set():
            self._reported += 1
            self.client.report(self.slot.name, report)

    def _report_lost(self, how: str) -> Exception | None:
        """The partition under way; what the client raises."""
        for one in self.task.partitions[self._reported : self._reported + 1]:
            try:
                self._report(Failure(one.index, one.attempt, FailureClass.WORKER_LOST, how, message=how))
            except Exception as error:  # noqa: BLE001  # it ends the client's segment, as what any report raises
                return error
        return None


def _error_of(work: asyncio.Task[None]) -> BaseException | None:
    return asyncio.CancelledError() if work.cancelled() else work.exception()
