"""Slots shared by the segments under way, in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from treadle.executors.interface import Executor, Slot
from treadle.executors.program import Report, Task


class Client(Protocol):
    """A segment that wants slots."""

    def offer(self, slot: str) -> Task | None:
        """A task for the free slot, or None when there is none now."""

    async def ready(self) -> None:
        """Return when a task just offered may start."""

    def report(self, slot: str, report: Report) -> None:
        """A partition of the slot's task ended."""

    def ended(self, slot: str, error: BaseException | None) -> None:
        """The slot's task is over."""


class SlotPool:
    """Hands free slots to clients, round robin, so that no segment starves another. One event loop."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._idle: deque[Slot] = deque(executor.slots)
        self._clients: deque[Client] = deque()
        self._runs: dict[str, tuple[Client, asyncio.Task[None]]] = {}

    @property
    def slots(self) -> Sequence[Slot]:
        return self.executor.slots

    def join(self, client: Client) -> None:
        self._clients.append(client)
        self.kick()

    async def leave(self, client: Client) -> None:
        """Kill what still runs for the client, and wait until its slots are free."""
        self._clients.remove(client)
        mine = [run for owner, run in self._runs.values() if owner is client]
        for run in mine:
            run.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def kick(self) -> None:
        """Offer every idle slot; called whenever a client may have become hungry."""
        for _ in range(len(self._idle)):
            slot = self._idle.popleft()
            if not self._place(slot):
                self._idle.append(slot)

    def _place(self, slot: Slot) -> bool:
        for _ in range(len(self._clients)):
            client = self._clients[0]
            self._clients.rotate(-1)
            task = client.offer(slot.name)
            if task is not None:
                run = asyncio.get_running_loop().create_task(self._run(slot, client, task), name=f"slot {slot.name}")
                self._runs[slot.name] = (client, run)
                return True
        return False

    async def _run(self, slot: Slot, client: Client, task: Task) -> None:
        error: BaseException | None = None
        try:
            await client.ready()
            await slot.run(task, _reporter(client, slot.name))
        except asyncio.CancelledError as cancelled:
            error = cancelled
        except Exception as unexpected:  # noqa: BLE001  # an executor's defect fails the segment, not the driver
            error = unexpected
        del self._runs[slot.name]
        self._idle.append(slot)
        client.ended(slot.name, error)
        self.kick()


def _reporter(client: Client, slot: str) -> Callable[[Report], None]:
    return lambda report: client.report(slot, report)
