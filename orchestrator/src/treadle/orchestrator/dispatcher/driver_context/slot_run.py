"""A task in a slot, from the offer until its client has received the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from treadle.executors.interface import Slot
from treadle.executors.program import Failure, Report, Task
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass, TreadleError


class SlotClient(Protocol):
    """A segment that wants slots."""

    def together(self) -> int:
        """The number of slots that it takes at once: 1, or the size of a gang; 0 when a gang is not due."""

    def offer(self, slot: str) -> Task | None:
        """A task for the free slot, or None when there is none now. A gang gets the offers of all its slots in
        sequence."""

    def backup(self, slot: str) -> Task | None:
        """A second attempt of a task that runs in another slot. Called when no client has a first attempt for the
        slot."""

    async def ready(self) -> None:
        """Return when a task just offered may start."""

    def report(self, slot: str, report: Report) -> None:
        """A partition of the slot's task ended."""

    def ended(self, slot: str, error: BaseException | None) -> None:
        """The slot's task is over."""

    def refuse(self, error: TreadleError) -> None:
        """Fail the client: too few slots are in service for its tasks, so none can begin."""


class SlotRun:
    """Passes a task's reports to its client, and its end once. Call `begin` once."""

    def __init__(self, slot: Slot, client: SlotClient, task: Task) -> None:
        self.slot, self.client, self.task = slot, client, task
        self.begun = False
        """The slot has received the task."""
        self.ending = False
        """The slot was ordered to end the task."""
        self.lost = False
        """The slot has forgotten the task."""
        self.over = asyncio.Event()
        """The client has received the end."""
        self._reported = 0
        self._work: asyncio.Task[None]

    def begin(self, ended: Callable[[BaseException | None], None]) -> None:
        """`ended` is called once the slot has released the task, with the exception of `Slot.run`."""
        self._work = spawn(self._run(), name=f"slot {self.slot.name}")
        self._work.add_done_callback(lambda work: ended(_error_of(work)))

    def cancel(self) -> None:
        """Have the slot end the task. Does nothing the second time: a second cancellation would cut its clean-up
        short."""
        if not self.ending:
            self.ending = True
            self._work.cancel()

    def lose(self, how: str) -> None:
        """Report the task as lost. The client does not wait for the slot."""
        self.lost = True
        self.cancel()
        self.tell(None, how)

    def tell(self, error: BaseException | None, how: str = "") -> None:
        """Report the task's end to the client, once.

        A task that ended without any report, or was lost (`how`), is reported as `worker lost`.
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
        """Report the partition under way as lost. Returns the client's exception."""
        for one in self.task.partitions[self._reported : self._reported + 1]:
            try:
                self._report(Failure(one.index, one.attempt, FailureClass.WORKER_LOST, how, message=how))
            except Exception as error:  # noqa: BLE001  # it ends the client's segment, as what any report raises
                return error
        return None


def _error_of(work: asyncio.Task[None]) -> BaseException | None:
    return asyncio.CancelledError() if work.cancelled() else work.exception()
