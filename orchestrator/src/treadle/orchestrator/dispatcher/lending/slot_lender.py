"""The server at which a driver lends its slots to gangs that need the slots of several hosts."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.executors.program import Outcome, Report, Task
from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels.gang import folder_of
from treadle.primitives.errors import InternalError, TreadleError
from treadle.primitives.wire import Address, address_of, listen, parse
from treadle.primitives.wire.acceptor import AcceptedConnection, Acceptor
from treadle.primitives.wire.handshake import Handshake
from treadle.primitives.wire.message_codec import decoder, encode_head
from treadle.primitives.wire.server_connection import ServerConnection
from treadle.primitives.wire.unauthenticated import Strangers, allowance

from ..driver_context.run_context import DriverContext
from ..driver_context.slot_pool import SlotPool
from .messages import (
    MESSAGE_BYTES,
    AskSlots,
    BeginTasks,
    EndTask,
    FromBorrower,
    HostSlots,
    LendSlots,
    Lent,
    TaskOver,
    TaskReport,
    ToBorrower,
)

if TYPE_CHECKING:
    from treadle.primitives.wire import Identity

HANDSHAKE_SECONDS = 10.0
"""Time from accepting a connection until its proof."""
_log = logging.getLogger(__name__)
_decode: Callable[[bytes, str], FromBorrower] = decoder(FromBorrower)


class SlotLender:
    """Lends the slots of `site` to every driver that holds the key of a run. For one event loop."""

    def __init__(self, site: DriverContext, address: str) -> None:
        """`address`: where the host serves its blocks (`peers` of the profile); this takes a port of its own there."""
        assert site.host is not None
        self._site = site
        self._numbers = itertools.count()
        self._loans: dict[ServerConnection, _Loan] = {}
        self._working: set[asyncio.Task[None]] = set()
        target = parse(address)
        secure = target.scheme == "tls"
        sock = listen(str(Address(target.scheme, target.host, 0)))
        self.address = address_of(sock, tls=secure)
        self._tls = _identity(site.host.root) if secure else None
        self._acceptor = Acceptor(
            sock,
            f"loans at {self.address}",
            Strangers(allowance(), HANDSHAKE_SECONDS),
            self._accept,
            tls=self._tls.context() if self._tls is not None else None,
        )

    async def stop(self) -> None:
        """End all loans. Their gangs count the tasks as lost."""
        self._acceptor.close()
        for connection in list(self._loans):
            connection.abort()
        for loan in self._working:
            loan.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    # -- called by connections ----------

    def _accept(self, caller: AcceptedConnection) -> ServerConnection:
        handshake = Handshake.server(self._key_of, self._tls.digest if self._tls is not None else b"")
        return ServerConnection(self, handshake, next(self._numbers), caller, message_bytes=MESSAGE_BYTES)

    def _key_of(self, run: str) -> bytes:
        return sealing.run_key(self._site.key, run)

    def began(self, connection: ServerConnection) -> None:
        """Nothing is proved yet."""

    def admitted(self, connection: ServerConnection) -> None:
        loan = self._loans[connection] = _Loan(self._site, connection)
        self._working.add(loan.work)
        loan.work.add_done_callback(self._working.discard)

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:
        for head in heads:
            self._loans[connection].received(_decode(head, connection.address))

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:
        loan = self._loans.pop(connection, None)
        if loan is not None:
            loan.work.cancel()
        if why is not None:
            _log.debug("a loan's connection has ended: %s", why)


class _Loan:
    """The slots that one attempt of a gang has here: a client of the pool (see `SlotClient`)."""

    def __init__(self, site: DriverContext, connection: ServerConnection) -> None:
        self._site, self._connection = site, connection
        self._waiting: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        """Slot -> its task, from the offer until its end."""
        self._gang = ""
        self._begin = asyncio.Event()
        self._orders: asyncio.Queue[AskSlots | LendSlots] = asyncio.Queue()
        self._pool: SlotPool | None = None
        self.work = spawn(self._serve(), name="loan")
        """Ends once the slots are free again."""

    # -- the connection

    def received(self, message: FromBorrower) -> None:
        match message:
            case AskSlots() | LendSlots():
                self._orders.put_nowait(message)
            case BeginTasks():
                self._begin.set()
            case EndTask(task) if self._pool is not None:
                self._pool.abort(self, [slot for slot, one in self._running.items() if one.id == task])

    async def _serve(self) -> None:
        try:
            while True:
                await self._carry_out(await self._orders.get())
        except TreadleError as error:
            _log.warning("no slots can be lent to a gang: %s", error)
            self._connection.close()
        finally:
            if self._pool is not None:
                await self._pool.leave(self)
                await asyncio.to_thread(self._clean)

    async def _carry_out(self, order: AskSlots | LendSlots) -> None:
        pool = await self._site.pools.ready(order.executor)
        if isinstance(order, AskSlots):
            assert self._site.host is not None
            count = len(pool.slots)
            self._say(HostSlots(self._site.host.host_id, count, count - pool.busy))
        elif self._pool is None:
            if self._site.hosts is not None:  # members on other hosts read the values of members here
                await asyncio.to_thread(self._site.hosts.announce, self._connection.run)
            self._gang = next((task.gang.name for task in order.tasks if task.gang is not None), "")
            self._waiting.extend(order.tasks)
            self._pool = pool
            pool.join(self)

    def _clean(self) -> None:
        """Remove the blocks that killed members have left in shared memory. Blocking."""
        host, run = self._site.host, self._connection.run
        try:
            if host is not None and self._gang:
                host.delete_folder(Blocks(self._site.store, run, host).on_host(folder_of(self._gang)))
        except (TreadleError, OSError) as error:
            _log.warning("what channels have left of their blocks goes with its run: %s", error)

    def _say(self, message: ToBorrower) -> None:
        self._connection.write([encode_head(message)])

    # -- the pool

    def together(self) -> int:
        return len(self._waiting)

    def offer(self, slot: str) -> Task | None:
        if not self._waiting:
            return None
        task = self._running[slot] = self._waiting.popleft()
        if not self._waiting:
            self._say(Lent())
        return task

    def backup(self, slot: str) -> Task | None:  # noqa: ARG002
        return None

    async def ready(self) -> None:
        await self._begin.wait()

    def report(self, slot: str, report: Report) -> None:
        if isinstance(report, Outcome):
            report = msgspec.structs.replace(report, slot=self._site.slot_name(slot))
        self._say(TaskReport(self._running[slot].id, report))

    def ended(self, slot: str, error: BaseException | None) -> None:
        over = TaskOver(self._running.pop(slot).id)
        if isinstance(error, TreadleError):
            users = not isinstance(error, InternalError)
            over = TaskOver(over.task, error.message, error.hint, users)
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            over = TaskOver(over.task, f"{type(error).__name__}: {error}")
        self._say(over)

    def refuse(self, error: TreadleError) -> None:
        _log.warning("no slots can be lent to a gang: %s", error)
        self._connection.close()


def _identity(folder: Path) -> Identity:
    from treadle.primitives.wire import tls_identity

    return tls_identity(folder)
