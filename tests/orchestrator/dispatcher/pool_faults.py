"""Slots with injected faults, and a client that counts its calls. For tests of the pool."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from treadle.executors.interface import Capabilities
from treadle.executors.program import BlockInput, Failure, Job, Keep, Outcome, Partition, Program, Report, Task
from treadle.orchestrator.dispatcher.driver_context.slot_pool import SlotPool
from treadle.primitives.errors import FailureClass, TreadleError

Fault = Literal["none", "waits", "dies", "raises", "is silent", "forgets", "clings", "lingers"]
"""The fault of one task in a slot.

none        its outcome is reported after a turn of the loop
waits       it ends when `end` is called
dies        its worker is lost after a turn
raises      `Slot.run` raises after a turn
is silent   it ends without a report
forgets     it never ends, and the slot reports that it has no task
clings      it ends by `end`, not by a cancellation
lingers     its outcome is reported, and the slot afterwards reports that it still has the task
"""
NO_INPUT = BlockInput(())
SEGMENT = Program("s", (), Keep())
JOB = Job("r", "w", "", 0, "memory://", "")


class FaultySlot:
    """See `Slot`."""

    def __init__(self, name: str, faults: deque[Fault]) -> None:
        self.name, self.task = name, ""
        self.stops = 0
        self._faults, self._end = faults, asyncio.Event()

    def end(self) -> None:
        """End a task that waits or clings."""
        self._end.set()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        assert not self.task, "one task at a time"
        fault: Fault = self._faults.popleft() if self._faults else "none"
        self.task, self._end = task.id, asyncio.Event()
        try:
            await self._play(fault, task.partitions[0], report)
        finally:
            if fault != "lingers":
                self.task = ""

    async def _play(self, fault: Fault, one: Partition, report: Callable[[Report], None]) -> None:
        match fault:
            case "waits":
                await self._end.wait()
            case "forgets":
                self.task = ""
                await asyncio.Event().wait()
            case "clings":
                await self._wait_for_the_end()
                return
            case _:
                await asyncio.sleep(0)
        if fault == "dies":
            report(Failure(one.index, one.attempt, FailureClass.WORKER_LOST, "it died"))
        elif fault == "raises":
            raise ValueError("a defect")
        elif fault != "is silent":
            report(Outcome(one.index, one.attempt, "objects", 0))

    async def _wait_for_the_end(self) -> None:
        while not self._end.is_set():
            try:
                await self._end.wait()
            except asyncio.CancelledError:
                continue

    async def stop(self) -> None:
        self.stops += 1
        self.task = ""


class FaultySlots:
    """See `Executor`. `faults`: of the tasks, in the order of their start; further tasks have none."""

    def __init__(self, count: int, faults: Iterable[Fault] = ()) -> None:
        self.faults = deque(faults)
        self.slots: Sequence[FaultySlot] = [FaultySlot(f"s{number}", self.faults) for number in range(count)]
        self.capabilities = Capabilities("faulty", count, shares_host=False)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class CountingClient:
    """Has a fixed number of partitions, and runs each until its outcome arrives."""

    def __init__(self, partitions: int) -> None:
        self.waiting = deque(range(partitions))
        self.running: dict[str, int] = {}
        self.done: set[int] = set()
        self.offered: Counter[int] = Counter()
        self.ended_: Counter[int] = Counter()
        self.failures: list[Failure] = []
        self.errors: list[BaseException] = []
        self.refused: TreadleError | None = None

    def together(self) -> int:
        return 1

    def offer(self, slot: str) -> Task | None:
        if not self.waiting:
            return None
        assert slot not in self.running
        index = self.running[slot] = self.waiting.popleft()
        self.offered[index] += 1
        return Task(
            f"t{index}.{self.offered[index]}",
            JOB,
            SEGMENT,
            (Partition(index, NO_INPUT, self.offered[index], final=False),),
        )

    def backup(self, slot: str) -> Task | None:
        return None

    async def ready(self) -> None:
        pass

    def report(self, slot: str, report: Report) -> None:
        assert self.running[slot] == report.partition
        if isinstance(report, Outcome):
            self.done.add(report.partition)
        else:
            self.failures.append(report)

    def ended(self, slot: str, error: BaseException | None) -> None:
        index = self.running.pop(slot)
        self.ended_[index] += 1
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.errors.append(error)
        if index not in self.done:
            self.waiting.append(index)

    def refuse(self, error: TreadleError) -> None:
        self.refused = error
        self.waiting.clear()


def faulty_pool(count: int, *faults: Fault) -> tuple[SlotPool, FaultySlots]:
    """A pool whose watchdog has a very short patience."""
    executor = FaultySlots(count, faults)
    return SlotPool(executor, patience=0.02, look=0.005), executor
