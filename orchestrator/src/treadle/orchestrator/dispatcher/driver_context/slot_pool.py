"""The slots of an executor, shared in turn by the running segments.

The pools of a driver: one for each executor that its segments have used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

from treadle.executors.interface import Executor, Slot
from treadle.executors.program import Task
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import InternalError, UsageError

from ..decisions.watchdog import PATIENCE, Finding, SlotObservation, Watchdog
from .slot_run import SlotClient, SlotRun

_log = logging.getLogger(__name__)
LOOK = 5.0
"""Seconds between two looks at the slots' reports."""


class SlotPool:
    """Hands free slots to clients, round robin, so that no segment starves another. For one event loop.

    The clients of one turn, such as the task groups of a segment, count as one. The first of them that has a task is
    served first, so that it finishes while others can take its slots.

    A gang takes all its slots or none. If its turn has come and there are too few, the pool keeps slots that become
    free for it, so that a stream of small tasks cannot delay it for ever. Only one gang at a time can hold slots in
    this way, and running tasks need nothing from it, so it gets its slots.

    A watchdog compares the runs here with the slots' reports (`decisions/watchdog.py`). A client receives the end of
    each task once: from its slot, or from the watchdog if the slot has forgotten the task or does not end it.
    """

    def __init__(self, executor: Executor, *, patience: float = PATIENCE, look: float = LOOK) -> None:
        """`patience`: seconds before a stuck slot is healed. `look`: seconds between two looks at the slots."""
        self.executor = executor
        self._idle: deque[Slot] = deque(executor.slots)
        self._turns: deque[list[SlotClient]] = deque()
        self._turn_of: dict[str, list[SlotClient]] = {}
        self._runs: dict[str, SlotRun] = {}
        self._resets: dict[str, asyncio.Task[None]] = {}
        """The resets under way, by slot."""
        self._stuck: set[str] = set()
        """Slots out of service until they have ended their task."""
        self._watchdog, self._look_seconds = Watchdog(patience), look
        self._timer: asyncio.TimerHandle | None = None

    @property
    def slots(self) -> Sequence[Slot]:
        return self.executor.slots

    @property
    def busy(self) -> int:
        """The number of slots that run a task."""
        return len(self._runs)

    def join(self, client: SlotClient, turn: str = "") -> None:
        """Add a client. `turn`: the name of the turn that it shares with other clients; empty: a turn of its own."""
        mates = self._turn_of.setdefault(turn, []) if turn else []
        mates.append(client)
        if len(mates) == 1:
            self._turns.append(mates)
        self._watch()
        self.kick()

    async def leave(self, client: SlotClient) -> None:
        """Kill the client's running tasks, and wait until its slots are free. Stuck slots are not waited for."""
        mates = next(mates for mates in self._turns if client in mates)
        mates.remove(client)
        if not mates:
            self._turns = deque(turn for turn in self._turns if turn)
            self._turn_of = {turn: mates for turn, mates in self._turn_of.items() if mates}
        mine = [run for run in self._runs.values() if run.client is client]
        for run in mine:
            run.cancel()
        await asyncio.gather(*(run.over.wait() for run in mine))
        self.kick()

    def abort(self, client: SlotClient, slots: Iterable[str]) -> None:
        """Kill the client's tasks in these slots. `ended` is called for each."""
        for slot in slots:
            run = self._runs.get(slot)
            if run is not None and run.client is client:
                run.cancel()

    def slots_of(self, client: SlotClient) -> list[str]:
        """The slots that run a task of the client."""
        return [slot for slot, run in self._runs.items() if run.client is client and not run.over.is_set()]

    def kick(self) -> None:
        """Offer idle slots. Call it whenever a client may have a new task.

        A client that has no task for one slot has none for another, so a thousand idle slots cost one offer.
        """
        if self._stuck:
            self._refuse()
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

    def _offer(self, client: SlotClient) -> bool:
        """Start a client's tasks in as many idle slots as it takes at once."""
        offered = [(slot, client.offer(slot.name)) for slot in list(islice(self._idle, client.together()))]
        for slot, task in offered:
            if task is not None:
                self._start(slot, client, task)
        return any(task is not None for _, task in offered)

    def _double(self) -> bool:
        """Start a backup in the next idle slot, for which no client has a first attempt."""
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

    def _start(self, slot: Slot, client: SlotClient, task: Task) -> None:
        self._idle.remove(slot)
        self._runs[slot.name] = run = SlotRun(slot, client, task)
        run.begin(partial(self._ended, run))
        self._watch()

    def _ended(self, run: SlotRun, error: BaseException | None) -> None:
        """The slot has released the task."""
        del self._runs[run.slot.name]
        if run.lost or run.slot.task:
            self._reset(run.slot)
        else:
            self._free(run.slot)
        try:
            run.tell(error)
        finally:
            self.kick()

    def _free(self, slot: Slot) -> None:
        self._stuck.discard(slot.name)
        self._idle.appendleft(slot)  # next time first: its process, or its function, is warm

    # -- stuck slots

    def _reset(self, slot: Slot) -> None:
        """Have the slot end its task. It is offered again afterwards."""
        task = self._resets[slot.name] = spawn(slot.stop(), name=f"reset of {slot.name}")
        task.add_done_callback(partial(self._was_reset, slot))

    def _was_reset(self, slot: Slot, task: asyncio.Task[None]) -> None:
        del self._resets[slot.name]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("slot %s could not be reset: %s", slot.name, error)
        self._free(slot)
        self.kick()

    def _watch(self) -> None:
        """Look at the slots periodically while there is a client or a task."""
        if self._timer is None and (self._runs or self._resets or self._turns):
            self._timer = asyncio.get_running_loop().call_later(self._look_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        seen = {slot.name: self._seen(slot) for slot in self.slots}
        found = self._watchdog.look(seen, asyncio.get_running_loop().time())
        for slot in self.slots if found else ():
            if slot.name in found:
                self._heal(slot, found[slot.name], seen[slot.name])
        self._watch()

    def _seen(self, slot: Slot) -> SlotObservation:
        run = self._runs.get(slot.name)
        if run is None:
            return SlotObservation("", slot.task, slot.name in self._resets)
        return SlotObservation(run.task.id if run.begun and not run.ending else "", slot.task, run.ending)

    def _heal(self, slot: Slot, finding: Finding, seen: SlotObservation) -> None:
        run = self._runs.get(slot.name)
        match finding:
            case Finding.LOST if run is not None:
                _log.error("slot %s says nothing of task %s: it is given to another slot", slot.name, seen.believed)
                run.lose("its slot has forgotten it")
            case Finding.STRAY if run is None:
                _log.error("slot %s runs task %s, which it was not given: it is reset", slot.name, seen.said)
                self._idle.remove(slot)
                self._reset(slot)
            case Finding.STUCK:
                task = run.task.id if run is not None else seen.said
                _log.error("slot %s does not end task %s: it is out of service until then", slot.name, task)
                self._stuck.add(slot.name)
                if run is not None:
                    run.tell(asyncio.CancelledError())
        self.kick()

    def _refuse(self) -> None:
        """Refuse the clients that need more slots than are in service."""
        usable = len(self.slots) - len(self._stuck)
        for client in [client for mates in self._turns for client in mates if client.together() > usable]:
            names = ", ".join(sorted(self._stuck))
            hint = "Once those processes are gone, or the driver is started again: treadle resume"
            client.refuse(InternalError(f"slots that do not end their tasks are out of service: {names}", hint))


class Pools:
    """A pool for each executor, made when the first segment needs it. For one event loop."""

    def __init__(self, executors: Mapping[str, Executor]) -> None:
        """`executors`: by the name that stages use. A UsageError of a look-up reaches the caller of `ready`."""
        self.executors = executors
        self._pools: dict[str, asyncio.Task[SlotPool]] = {}

    async def ready(self, name: str) -> SlotPool:
        """The started pool of an executor. Raises UsageError when the executor does not exist, or does not start."""
        task = self._pools.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._pools[name] = spawn(self._start(name), name=f"start {name}")
        return await asyncio.shield(task)

    def open(self) -> list[tuple[str, SlotPool]]:
        """The pools made so far, by the names of their executors."""
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
        """Stop every executor that has started or is starting."""
        started = await asyncio.gather(*self._pools.values(), return_exceptions=True)
        await asyncio.gather(*(pool.executor.stop() for pool in started if isinstance(pool, SlotPool)))
