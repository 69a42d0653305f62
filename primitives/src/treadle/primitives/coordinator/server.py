"""The coordinator's shell: TCP connections, clocks and encodings around `Coordinator`, for all runs of a process.

The messages of one turn of the event loop form a batch: each is given to the machine as it is read, then the machine
ticks, and each connection is written to once. A message to several members is encoded once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..addresses import parse
from ..errors import UsageError
from ..wire.acceptor import AcceptedConnection, Acceptor
from ..wire.connect import address_of, listen
from ..wire.handshake import Handshake, KeyOf
from ..wire.message_codec import decoder, encode_head
from ..wire.server_connection import ServerConnection
from ..wire.unauthenticated import Strangers, allowance
from .component import CoordinatorLimits, Statistics, Timing
from .instructions import Deliver, Disconnect, Instruction, Returned, SendToConnection, StateSaved
from .machine import Coordinator
from .messages import Checkpointed, Dismissed, FromMember, Hello, ToMember, gang_of

if TYPE_CHECKING:
    from ..wire.tls import Identity

OnResult = Callable[[str, Deliver], None]
"""Called in the event loop with a run and the result of one of its tasks."""

OnReturned = Callable[[str, Returned], None]
"""Called in the event loop with a run and a task that its member did not finish."""

OnSaved = Callable[[StateSaved], None]
"""Called in the event loop with a state that a member of a gang has saved."""

HANDSHAKE_SECONDS = 10.0
"""Time from accepting a connection until the member must have proved that it holds the run's key, TLS included."""

_log = logging.getLogger(__name__)
_decode: Callable[[bytes, str], FromMember] = decoder(FromMember)


class _Run:
    """The machine of one run, and its connections by number."""

    def __init__(self, machine: Coordinator) -> None:
        self.machine = machine
        self.connections: dict[int, ServerConnection] = {}
        self.instructions: list[Instruction] = []
        self.timer: asyncio.TimerHandle | None = None
        self.owners: dict[str, OnSaved] = {}
        """Gang -> receives the states that its members save."""
        self.dismissed: set[str] = set()
        """Gangs whose members are to leave."""


class CoordinatorServer:
    """Coordinates the members of all runs whose key it has; members of different runs do not see each other.

    `key_of` returns the key of a run, or None. `address`: `tcp://` on loopback, `tls://` with an identity; port 0 takes
    a free port. The number of unauthenticated connections is bounded: each has 10 s, and the oldest is closed first.
    The reason why a connection ended is logged at debug level. For one event loop.
    """

    def __init__(
        self,
        key_of: KeyOf,
        address: str = "tcp://127.0.0.1:0",
        *,
        tls: Identity | None = None,
        timing: Timing | None = None,
        limits: CoordinatorLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_result: OnResult = lambda run, result: None,  # noqa: ARG005
        on_returned: OnReturned = lambda run, task: None,  # noqa: ARG005
    ) -> None:
        if (parse(address).scheme == "tls") != (tls is not None):
            raise UsageError(f"an identity goes with tls:// and only with it, not with {address}", "See tls_identity.")
        self.address = address
        """The address it listens at; after `start` with the real port."""
        self._key_of, self._tls = key_of, tls
        self._timing, self._limits, self._clock = timing, limits or CoordinatorLimits(), clock
        self._on_result, self._on_returned = on_result, on_returned
        self._runs: dict[str, _Run] = {}
        self._open: set[ServerConnection] = set()
        self._numbers = itertools.count()
        self._waiting: dict[str, None] = {}
        self._all_ended = asyncio.Event()
        self._acceptor: Acceptor | None = None

    # -- for the owner ----------

    async def start(self) -> None:
        """Listen. Raises UsageError for an invalid address, WireError when the address is in use."""
        sock = listen(self.address)
        self.address = address_of(sock, tls=self._tls is not None)
        strangers: Strangers[AcceptedConnection] = Strangers(allowance(), HANDSHAKE_SECONDS)
        context = self._tls.context() if self._tls is not None else None
        self._acceptor = Acceptor(sock, f"coordinator at {self.address}", strangers, self._accept, tls=context)

    async def stop(self) -> None:
        """Close all connections; members notice, and may find another coordinator. May be called twice."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.close()
        for run in self._runs.values():
            if run.timer is not None:
                run.timer.cancel()
        self._runs.clear()
        self._all_ended.clear()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            await self._all_ended.wait()

    async def __aenter__(self) -> CoordinatorServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def offer(self, run: str, task: str, body: bytes, member: str = "") -> None:
        """Offer a task to one member of the run, or to any. `on_result` receives its result, or `on_returned` the task.

        Raises UsageError when a task of this name is already offered.
        """
        found = self._run(run)
        found.instructions += found.machine.offer(task, body, self._clock(), member)
        self._later(run)

    def withdraw(self, run: str, task: str) -> None:
        """Withdraw the task: neither callback will be called for it."""
        if (found := self._runs.get(run)) is not None:
            found.instructions += found.machine.withdraw(task, self._clock())
            self._later(run)

    def dismiss(self, run: str, member: str) -> None:
        """Ask a member to leave."""
        self._tell(run, member, Dismissed())

    def dismiss_gang(self, run: str, gang: str) -> None:
        """Ask all members of a gang to leave. Members that come before `disown` are asked, too."""
        found = self._run(run)
        found.dismissed.add(gang)
        for member in found.machine.members():
            if gang_of(member) == gang:
                self.dismiss(run, member)

    def own(self, run: str, gang: str, saved: OnSaved) -> None:
        """From now on, call `saved` in the event loop with each state that a member of the gang saves."""
        self._run(run).owners[gang] = saved

    def disown(self, run: str, gang: str) -> None:
        """The opposite of `own`; does nothing for another gang."""
        if (found := self._runs.get(run)) is not None:
            found.owners.pop(gang, None)
            found.dismissed.discard(gang)
            self._later(run)

    def answer(self, run: str, member: str, checkpoint: int, refused: str = "") -> None:
        """Answer a state that a member has saved: its checkpoint is on record, or is refused for a reason."""
        self._tell(run, member, Checkpointed(checkpoint, refused))

    def _tell(self, run: str, member: str, message: Dismissed | Checkpointed) -> None:
        if (found := self._runs.get(run)) is not None:
            found.instructions += found.machine.tell(member, message, self._clock())
            self._later(run)

    def present(self, run: str, member: str) -> bool:
        """Return whether the member has joined the run, and neither left nor was lost."""
        found = self._runs.get(run)
        return found is not None and found.machine.present(member)

    def statistics(self, run: str) -> Statistics:
        """Return the counts of a run's entries, by kind."""
        return self._runs[run].machine.statistics() if run in self._runs else Statistics()

    # -- connections ----------

    def _accept(self, caller: AcceptedConnection) -> ServerConnection:
        handshake = Handshake.server(self._key_of, self._tls.digest if self._tls else b"")
        return ServerConnection(self, handshake, next(self._numbers), caller)

    def began(self, connection: ServerConnection) -> None:
        """A connection can be written to, and has proved nothing yet. Not called where TLS fails."""
        self._open.add(connection)
        if self._acceptor is None:
            connection.abort()

    def admitted(self, connection: ServerConnection) -> None:
        run = self._run(connection.run)
        run.connections[connection.number] = connection
        run.instructions += run.machine.connected(connection.number, self._clock(), connection.address)
        self._later(connection.run)

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:
        run = self._runs.get(connection.run)
        if run is None:
            return
        for head in heads:
            message = _decode(head, connection.address)
            run.instructions += run.machine.received(connection.number, message, self._clock())
            if isinstance(message, Hello) and gang_of(message.member) in run.dismissed:
                self.dismiss(connection.run, message.member)
        self._later(connection.run)

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:
        self._open.discard(connection)
        run = self._runs.get(connection.run)
        if run is not None and run.connections.pop(connection.number, None) is not None:
            run.instructions += run.machine.disconnected(connection.number, self._clock())
            self._later(connection.run)
        if why is not None:
            _log.debug("the connection of %s has ended: %s", connection.address, why)
        if not self._open:
            self._all_ended.set()

    # -- batches ----------

    def _run(self, name: str) -> _Run:
        """Epochs begin at the time of day, in microseconds: higher than all epochs of an earlier coordinator."""
        if name not in self._runs:
            machine = Coordinator(timing=self._timing, limits=self._limits, last_epoch=time.time_ns() // 1000)
            self._runs[name] = _Run(machine)
        return self._runs[name]

    def _later(self, name: str) -> None:
        """Process the run after all messages that can be read now."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting[name] = None

    def _turn(self) -> None:
        names, self._waiting = self._waiting, {}
        for name in names:
            if (run := self._runs.get(name)) is not None:
                self._tick(name, run)

    def _tick(self, name: str, run: _Run) -> None:
        instructions, run.instructions = run.instructions, []
        instructions += run.machine.tick(self._clock())
        self._perform(name, run, instructions)
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None
        due = run.machine.wakes_at()
        if due is not None:
            delay = max(0.0, due - self._clock())
            run.timer = asyncio.get_running_loop().call_later(delay, self._later, name)
        elif not (run.connections or run.owners or run.machine.statistics().tasks):
            self._runs.pop(name, None)

    def _perform(self, name: str, run: _Run, instructions: list[Instruction]) -> None:
        encoded: dict[int, bytes] = {}
        heads: dict[int, list[bytes]] = {}
        closing: list[int] = []
        for instruction in instructions:
            match instruction:
                case SendToConnection(number, message):
                    heads.setdefault(number, []).append(_encoded(message, encoded))
                case Disconnect(number):
                    closing.append(number)
                case Deliver():
                    self._on_result(name, instruction)
                case Returned():
                    self._on_returned(name, instruction)
                case StateSaved(member):
                    if (saved := run.owners.get(gang_of(member))) is not None:
                        saved(instruction)
        for number, batch in heads.items():
            if (connection := run.connections.get(number)) is not None:
                connection.write(batch)
        for number in closing:
            if (connection := run.connections.pop(number, None)) is not None:
                connection.close()


def _encoded(message: ToMember, known: dict[int, bytes]) -> bytes:
    """Encode a message once, identified by `id`, which is safe because the batch keeps its messages alive."""
    head = known.get(id(message))
    if head is None:
        head = known[id(message)] = encode_head(message)
    return head
