"""Slots shared by the segments under way, in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from treadle.executors.interface import Executor, Slot
from treadle.executors.program import Report, Task
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import UsageError


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


class SlotPool:
    """Hands free slots to clients, round robin, so that no segment starves another. One event loop.

    Clients of one turn, such as the task groups of a segment, count as one; the first of them that has something is
    served first, so that it is done while there are others to take its slots.

    A gang takes its slots all or none. When its turn has come and there are too few, those that become free are kept
    for it, so that a stream of small tasks cannot keep it waiting; only one gang at a time can hold slots in this way,
    and tasks that run need nothing from it, so it gets them.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._idle: deque[Slot] = deque(executor.slots)
        self._turns: deque[list[Client]] = deque()
        self._turn_of: dict[str, list[Client]] = {}
        self._runs: dict[str, tuple[Client, asyncio.Task[None]]] = {}

    @property
    def slots(self) -> Sequence[Slot]:
        return self.executor.slots

    @property
    def busy(self) -> int:
        """Slots in which something runs."""
        return len(self._runs)

    def join(self, client: Client, turn: str = "") -> None:
        """`turn`: whom it shares its turn with; empty: nobody."""
        mates = self._turn_of.setdefault(turn, []) if turn else []
        mates.append(client)
        if len(mates) == 1:
            self._turns.append(mates)
        self.kick()

    async def leave(self, client: Client) -> None:
        """Kill what still runs for the client, and wait until its slots are free."""
        mates = next(mates for mates in self._turns if client in mates)
        mates.remove(client)
        if not mates:
            self._turns = deque(turn for turn in self._turns if turn)
            self._turn_of = {turn: mates for turn, mates in self._turn_of.items() if mates}
        mine = [run for owner, run in self._runs.values() if owner is client]
        for run in mine:
            run.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        self.kick()

    def abort(self, client: Client, slots: Iterable[str]) -> None:
        """Kill what runs for the client in these slots; `ended` is called for each."""
        for slot in slots:
            owner, run = self._runs.get(slot, (None, None))
            if owner is client and run is not None:
                run.cancel()

    def slots_of(self, client: Client) -> list[str]:
        """Slots in which something runs for the client."""
        return [slot for slot, (owner, _) in self._runs.items() if owner is client]

    def kick(self) -> None:
        """Offer idle slots; called whenever a client may have become hungry.

        A client that has nothing for one slot has nothing for another, so that a thousand idle slots cost one offer.
        """
        while self._idle and (self._serve() or self._double()):
            pass

    def _serve(self) -> bool:
        """Start the first task that a client, in turn, has for the next idle slot, or the first gang."""
        for _ in range(len(self._turns)):
            mates = self._turns[0]
            if any(client.together() > len(self._idle) for client in mates):
                return False
            self._turns.rotate(-1)
            if any(self._offer(client) for client in mates):
                return True
        return False

    def _offer(self, client: Client) -> bool:
        """Start what a client has for as many idle slots as it takes at once."""
        offered = [(slot, client.offer(slot.name)) for slot in list(islice(self._idle, client.together()))]
        for slot, task in offered:
            if task is not None:
                self._start(slot, client, task)
        return any(task is not None for _, task in offered)

    def _double(self) -> bool:
        """Start a backup in the next idle slot; nobody had anything else for it."""
        clients = [client for mates in self._turns for client in mates]
        if any(client.together() > len(self._idle) for client in clients):
            return False
        for client in clients:
            slot = self._idle[0]
            task = client.backup(slot.name)
            if task is not None:
                self._start(slot, client, task)
                return True
        return False

    def _start(self, slot: Slot, client: Client, task: Task) -> None:
        self._idle.remove(slot)
        run = spawn(self._run(slot, client, task), name=f"slot {slot.name}")
        self._runs[slot.name] = (client, run)

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


class Pools:
    """A pool for each executor, made when the first segment wants it. One event loop."""

    def __init__(self, executors: Mapping[str, Executor]) -> None:
        """`executors` by the name that stages use; what raises UsageError at a look-up is told to who wants it."""
        self.executors = executors
        self._pools: dict[str, asyncio.Task[SlotPool]] = {}

    async def ready(self, name: str) -> SlotPool:
        """The pool of an executor, started. Raises UsageError when there is no such executor, or it does not start."""
        task = self._pools.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._pools[name] = spawn(self._start(name), name=f"start {name}")
        return await asyncio.shield(task)

    def open(self) -> list[tuple[str, SlotPool]]:
        """The pools that were made, by the names of their executors."""
        done = {name: task for name, task in self._pools.items() if task.done() and not task.cancelled()}
        return [(name, task.result()) for name, task in done.items() if task.exception() is None]

    async def _start(self, name: str) -> SlotPool:
        executor = self.executors.get(name)
        if executor is None:
            known = ", ".join(self.executors)
            raise UsageError(f"this driver has no executor {name!r}", f"Its profile has: {known}.")
        await executor.start()
        return SlotPool(executor)

    async def stop(self) -> None:
        """End every executor that was started, or is just starting."""
        started = await asyncio.gather(*self._pools.values(), return_exceptions=True)
        await asyncio.gather(*(pool.executor.stop() for pool in started if isinstance(pool, SlotPool)))


def _reporter(client: Client, slot: str) -> Callable[[Report], None]:
    return lambda report: client.report(slot, report)
