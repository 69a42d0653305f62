"""Several hosts on one machine: executors with separate shared memory, which pull blocks from each other over TCP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from treadle.executors.interface import Capabilities, Executor, Slot
from treadle.executors.program import Report, Task


class NamedSlot:
    """A slot of one of several executors, under its own name."""

    def __init__(self, name: str, slot: Slot) -> None:
        self.name, self._slot = name, slot

    @property
    def task(self) -> str:
        return self._slot.task

    async def stop(self) -> None:
        await self._slot.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        await self._slot.run(task, report)


class SeveralHosts:
    """One executor made of several, each of which has its own host folder. Slots alternate between the hosts."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self._executors = executors
        rows = [[NamedSlot(f"host{i}-{slot.name}", slot) for slot in one.slots] for i, one in enumerate(executors)]
        self._slots = [slot for row in zip(*rows, strict=True) for slot in row]
        self.capabilities: Capabilities = msgspec.structs.replace(
            executors[0].capabilities, name="hosts", slots=len(self._slots)
        )

    @property
    def slots(self) -> Sequence[NamedSlot]:
        return self._slots

    async def start(self) -> None:
        for executor in self._executors:
            await executor.start()

    async def stop(self) -> None:
        for executor in self._executors:
            await executor.stop()
