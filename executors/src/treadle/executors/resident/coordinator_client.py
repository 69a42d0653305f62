"""A member's connection to its coordinator: messages of the member's state machine, over a connection with two
threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.coordinator.messages import FromMember, ToMember
from treadle.primitives.errors import TreadleError
from treadle.primitives.hole_punching import ANY
from treadle.primitives.wire import Connection, WireError, connect

from .machine import Begin, EndMember, Instruction, KillTask, MemberMachine, Redial, Say

if TYPE_CHECKING:
    from treadle.primitives.peers.gateway import Gateway

_ATTEMPT = 5.0
"""Seconds for one attempt to connect, and for the kernel to accept one message."""
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts; each pause is twice the last."""
_FOREVER = 1e9
_Unsent = SimpleQueue[FromMember | None]
"""None: no further messages."""


class ResidentCoordinatorClient:
    """For one use: `dial`, `attend`, `keep_time`, `close`."""

    _machine: MemberMachine
    _work: Callable[[Begin | KillTask], None]
    _gateway: Gateway | None

    def __init__(self, address: str, run: str, key: bytes) -> None:
        self._address, self._run, self._key = address, run, key
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._dialling: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._unsent: _Unsent | None = None
        """Messages for the current connection, from `listen` on."""
        self._sender: threading.Thread | None = None

    @property
    def connected(self) -> bool:
        return self._unsent is not None

    @property
    def source(self) -> tuple[str, int]:
        """The local address of the connection to the coordinator, or `ANY` without a connection."""
        connection = self._connection
        if connection is None or connection.closed:
            return ANY
        host, port = connection.sock.getsockname()[:2]
        return host, port

    async def dial(self, until: float) -> None:
        """Connect, with retries until `until` (monotonic). Raises TreadleError if no attempt succeeded."""
        self._hang_up()
        pause = _PAUSE
        while True:
            try:
                self._connection = await asyncio.to_thread(self._connect)
            except TreadleError:
                if time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return

    def attend(
        self, machine: MemberMachine, work: Callable[[Begin | KillTask], None], gateway: Gateway | None = None
    ) -> None:
        """Read from the new connection, and perform the machine's instructions.

        `work` receives the instructions other than sending and redialling; `gateway` receives all messages, too.
        """
        self._machine, self._work, self._gateway = machine, work, gateway
        self._listen()

    async def keep_time(self) -> str:
        """Run the machine's timers until it leaves; return its reason. Raises the error passed to `fail`."""
        while not self._over.done():
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._machine.wakes_at() - time.monotonic())):
                    await self._woken.wait()
            self.perform(self._machine.tick(time.monotonic()))
        return self._over.result()

    def fail(self, error: Exception) -> None:
        """End `keep_time` with an error."""
        if not self._over.done():
            self._over.set_exception(error)
        self._woken.set()

    def perform(self, instructions: list[Instruction]) -> None:
        """Perform the machine's instructions."""
        for one in instructions:
            match one:
                case Say(message):
                    self.say(message)
                case Redial():
                    self._dialling = spawn(self._dial_again(), name="dial")
                case EndMember(why):
                    if not self._over.done():
                        self._over.set_result(why)
                case _:
                    self._work(one)
        self._woken.set()

    async def _dial_again(self) -> None:
        """Redial until the machine gives up."""
        await self.dial(float("inf"))
        self._listen()

    def _listen(self) -> None:
        assert self._connection is not None
        self._unsent = SimpleQueue()
        self._sender = self._start(_send, self._connection, self._unsent)
        self._start(self._read, self._connection)
        self.perform(self._machine.connected(time.monotonic()))

    def say(self, message: FromMember) -> None:
        """Send in order, without waiting. Without a connection the message is dropped; the machine repeats important
        ones.

        A message that cannot be sent ends the connection.
        """
        if self._unsent is not None:
            self._unsent.put(message)

    def say_threadsafe(self, message: FromMember) -> None:
        """Like `say`, from any thread. The loop sends it, so that it cannot precede the first messages of a
        connection."""
        self._tell(self.say, message)

    async def finish(self) -> None:
        """Close the connection after all messages are sent."""
        sender, unsent = self._sender, self._unsent
        if sender is not None and unsent is not None:
            unsent.put(None)
            await asyncio.to_thread(sender.join)
        self._hang_up()

    def close(self) -> None:
        """Close the connection at once, and stop dialling."""
        if self._dialling is not None:
            self._dialling.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        """End the connection; the thread that reads it closes it."""
        connection, self._connection = self._connection, None
        unsent, self._unsent = self._unsent, None
        if connection is None:
            return
        if unsent is None:
            connection.close()  # no thread reads it yet
        else:
            connection.abort()
            unsent.put(None)

    def _connect(self) -> Connection:
        deadline = time.monotonic() + _ATTEMPT
        return connect(self._address, self._run, self._key, deadline=deadline, source=ANY)

    def _start(self, work: Callable[..., None], *about: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=about, name="treadle-uplink", daemon=True)
        thread.start()
        return thread

    def _read(self, connection: Connection) -> None:
        with contextlib.suppress(WireError), connection:
            while True:
                message, _ = connection.receive_head(ToMember, time.monotonic() + _FOREVER)
                self._tell(self._hear, connection, message)
        self._tell(self._ended, connection)

    def _tell(self, what: Callable[..., None], *about: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what, *about)

    def _hear(self, connection: Connection, message: ToMember) -> None:
        if connection is self._connection:
            if self._gateway is not None:
                self._gateway.heard(message, self.source)
            self.perform(self._machine.heard(message, time.monotonic()))

    def _ended(self, connection: Connection) -> None:
        if connection is self._connection:
            self._hang_up()
            self.perform(self._machine.disconnected(time.monotonic()))


def _send(connection: Connection, unsent: _Unsent) -> None:
    with contextlib.suppress(WireError):
        while (message := unsent.get()) is not None:
            connection.send(message, deadline=time.monotonic() + _ATTEMPT)
        return
    connection.abort()
