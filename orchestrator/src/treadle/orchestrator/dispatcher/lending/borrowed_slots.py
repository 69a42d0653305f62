"""The slots of one gang that is larger than its driver's host: an executor whose slots are lent by several drivers.

The driver's own slots are lent to it in the same way. An attempt asks all drivers, chooses hosts (`gang_hosts`), and
takes their slots in the order of the host ids. Two gangs therefore never wait for each other's slots. A gang without
all its slots after `GATHERING` gives them back, and tries again after its back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from treadle.executors.interface import Capabilities
from treadle.executors.local.gang_coordinator import GangCoordinator
from treadle.executors.program import Failure, Report, Task
from treadle.executors.resident.lifetime import GATHERING
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.channels.gang import Gang, MeetingPlace
from treadle.primitives.errors import FailureClass, InternalError, UsageError
from treadle.primitives.wire import NotAuthentic, WireError

from ..decisions.gang_hosts import HostRoom, by_subtrees, shares
from ..driver_context.run_context import DriverContext
from ..driver_context.slot_pool import SlotPool
from .host_link import HostLink
from .messages import AskSlots, BeginTasks, EndTask, HostSlots, LendSlots, Lent, TaskOver, TaskReport

_ENDING = 10.0
"""Seconds for a host to end a task. Then it counts as lost."""
_log = logging.getLogger(__name__)


def borrows(site: DriverContext, pool: SlotPool, size: int) -> bool:
    """Returns whether a gang of this size takes slots of several hosts."""
    can = pool.executor.capabilities
    return site.lending is not None and can.gangs and can.shares_host and size > len(pool.slots)


class BorrowedSlots:
    """See `GangExecutor`. Each of its slots is a place in the gang, and takes the slot of some host for an attempt."""

    def __init__(self, site: DriverContext, executor: str, size: int, key: bytes) -> None:
        """`executor`: the name of the executor whose slots the hosts lend; `key`: the run's."""
        assert site.lending is not None
        self.site, self.executor, self.key, self.lending = site, executor, key, site.lending
        own: Capabilities = site.pools.executors[executor].capabilities
        self.capabilities = msgspec.structs.replace(own, slots=size)
        self._slots = [BorrowedSlot(f"member-{rank}", self) for rank in range(size)]
        self._attempts: dict[str, _Attempt] = {}
        """The attempt under way, by the name of its gang."""

    @property
    def slots(self) -> Sequence[BorrowedSlot]:
        return self._slots

    async def start(self) -> None:
        """Slots are borrowed when an attempt begins."""

    async def stop(self) -> None:
        """Give all slots back."""
        for attempt in list(self._attempts.values()):
            attempt.close()

    @asynccontextmanager
    async def gang_place(self, run: str) -> AsyncIterator[MeetingPlace]:
        """See `GangExecutor`. The coordinator listens where this driver lends its slots, on a port of its own."""
        meeting = GangCoordinator({run: self.key}.get, self.lending.address)
        async with meeting.coordinator() as server:
            yield MeetingPlace(server, server.address, identity=meeting.identity)

    def attempt(self, gang: Gang) -> _Attempt:
        if gang.name not in self._attempts:
            self._attempts = {gang.name: _Attempt(self, gang)}
        return self._attempts[gang.name]


class BorrowedSlot:
    """See `Slot`."""

    def __init__(self, name: str, owner: BorrowedSlots) -> None:
        self.name, self.task = name, ""
        self._owner = owner

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """See `Slot.run`."""
        if task.gang is None:
            raise InternalError(f"task {task.id} is not of a gang, and only gangs borrow slots")
        self.task = task.id
        try:
            await self._owner.attempt(task.gang).run(task, report)
        finally:
            self.task = ""

    async def stop(self) -> None:
        """See `Slot.stop`."""
        await self._owner.stop()


class _Part:
    """The task of one member."""

    def __init__(self, task: Task, report: Callable[[Report], None]) -> None:
        self.task, self._report = task, report
        self.rank = task.gang.rank if task.gang is not None else 0
        self.link: HostLink | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, failure: FailureClass, how: str) -> None:
        """Report the failure of the task, and end it."""
        one = self.task.partitions[0]
        self.report(Failure(one.index, one.attempt, failure, how, message=how))
        self.end()

    def report(self, report: Report) -> None:
        if self.over.done():
            return
        try:
            self._report(report)
        except Exception as error:  # noqa: BLE001  # `Slot.run` raises it
            self.end(error)

    def end(self, error: Exception | None = None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


class _Attempt:
    """One attempt of the gang."""

    def __init__(self, owner: BorrowedSlots, gang: Gang) -> None:
        self._owner, self._gang = owner, gang
        self._parts: dict[str, _Part] = {}
        """By the id of the task."""
        self._links: list[HostLink] = []
        self._begun = False
        self._work: asyncio.Task[None] | None = None

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        part = self._parts[task.id] = _Part(task, report)
        if len(self._parts) == self._gang.size:
            self._parts = dict(sorted(self._parts.items(), key=lambda item: item[1].rank))
            self._work = spawn(self._begin(), name=f"slots of {self._gang.name}")
        try:
            await asyncio.shield(part.over)
        except asyncio.CancelledError:
            await self._end(part)
            raise
        finally:
            if all(one.over.done() for one in self._parts.values()):
                self.close()

    def close(self) -> None:
        """Give the slots back. Tasks that still run count as lost."""
        if self._work is not None:
            self._work.cancel()
        for link in self._links:
            link.close()
        for part in self._parts.values():
            part.fail(FailureClass.WORKER_LOST, "its gang has given its slots back")

    async def _end(self, part: _Part) -> None:
        """Have the host end the task. Before the start, the whole gang ends."""
        if not self._begun or part.link is None:
            part.end()
            self.close()
            return
        part.link.send(EndTask(part.task.id))
        await asyncio.wait({part.over}, timeout=_ENDING)
        if not part.over.done():
            part.link.close()
            part.end()

    # -- the start

    async def _begin(self) -> None:
        why = f"its slots were not all idle after {GATHERING:.0f} s"
        try:
            async with asyncio.timeout(GATHERING):
                why = await self._gather() or ""
        except (TimeoutError, WireError) as error:
            why = error.message if isinstance(error, WireError) else why
        if why:
            self._give_up(f"the gang needs {self._gang.size} slots at once: {why}")
            return
        self._begun = True
        for link in {part.link for part in self._parts.values() if part.link is not None}:
            link.send(BeginTasks())

    def _give_up(self, why: str) -> None:
        for link in self._links:
            link.close()
        for part in self._parts.values():
            part.fail(FailureClass.THROTTLED, why)

    async def _gather(self) -> str:
        """Borrow all slots. Returns the reason why that is impossible now. Raises WireError."""
        addresses = dict.fromkeys(
            [self._owner.lending.address, *(one.address for one in await self._owner.lending.find())]
        )
        asked = [one for one in await asyncio.gather(*map(self._ask, addresses)) if one is not None]
        hosts = {found.host: (link, found) for link, found in reversed(asked)}
        rooms = [HostRoom(found.host, found.slots, found.idle) for _, found in hosts.values()]
        host = self._owner.site.host
        chosen = shares(self._gang.size, rooms, host.host_id if host is not None else "")
        if chosen is None:
            found = "1 host has" if len(rooms) == 1 else f"{len(rooms)} hosts have"
            return f"{found} {sum(room.slots for room in rooms)}"
        parts, order = list(self._parts.values()), iter(by_subtrees(self._gang.size))
        for name, count in chosen.items():
            for part in [parts[next(order)] for _ in range(count)]:
                part.link = hosts[name][0]
        for name in sorted(chosen):
            await self._borrow(hosts[name][0])
        gone = [name for name in chosen if not hosts[name][0].open]
        return f"host {gone[0]} was lost" if gone else ""

    async def _ask(self, address: str) -> tuple[HostLink, HostSlots] | None:
        link = HostLink(address, self._heard, self._lost)
        self._links.append(link)
        try:
            await link.dial(self._gang.run, self._owner.key)
            return link, await link.ask(AskSlots(self._owner.executor), HostSlots)
        except (TimeoutError, WireError, NotAuthentic) as error:
            _log.info("a driver lends no slots: %s", error)
            link.close()
            return None

    async def _borrow(self, link: HostLink) -> None:
        tasks = tuple(part.task for part in self._parts.values() if part.link is link)
        await link.ask(LendSlots(self._owner.executor, tasks), Lent)

    # -- called by links

    def _heard(self, message: TaskReport | TaskOver) -> None:
        part = self._parts.get(message.task)
        if part is None:
            return
        if isinstance(message, TaskReport):
            part.report(message.report)
        elif not message.error:
            part.end()
        else:
            error = UsageError if message.users else InternalError
            part.end(error(message.error, message.hint))

    def _lost(self, link: HostLink) -> None:
        for part in self._parts.values():
            if part.link is link and self._begun:
                part.fail(FailureClass.WORKER_LOST, f"the driver at {link.address} that ran it was lost")
