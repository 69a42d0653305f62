"""A member's connection to its coordinator, for an event loop: a thread reads, another one sends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

from treadle.primitives.coordinator.messages import FromMember, ToMember
from treadle.primitives.errors import TreadleError
from treadle.primitives.traversal import ANY
from treadle.primitives.wire import Connection, WireError, connect

_ATTEMPT = 5.0
"""Seconds for one attempt to connect, and for one message to be taken by the kernel."""
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts; each pause is twice the last."""
_FOREVER = 1e9
_encode = msgspec.msgpack.Encoder().encode
_Unsent = SimpleQueue[FromMember | None]
"""None: there is no more."""


class Uplink:
    """`heard` gets messages and `broken` is called once for each connection that ends, both in the loop."""

    def __init__(
        self, address: str, run: str, key: bytes, heard: Callable[[ToMember], None], broken: Callable[[], None]
    ) -> None:
        self._address, self._run, self._key = address, run, key
        self._heard, self._broken = heard, broken
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._unsent: _Unsent | None = None
        """For the connection there is, from `listen` on."""
        self._sender: threading.Thread | None = None

    @property
    def source(self) -> tuple[str, int]:
        """The local address on the way to the coordinator; no longer there without a connection: `ANY`."""
        connection = self._connection
        if connection is None or connection.closed:
            return ANY
        host, port = connection.sock.getsockname()[:2]
        return host, port

    async def dial(self, until: float) -> None:
        """Connect, trying until that moment (monotonic). Raises TreadleError when nobody was there."""
        self.hang_up()
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

    def listen(self) -> None:
        """Hear what comes over the new connection, and say what is to be said."""
        assert self._connection is not None
        self._unsent = SimpleQueue()
        self._sender = self._start(_send, self._connection, self._unsent)
        self._start(self._read, self._connection)

    def say(self, message: FromMember) -> None:
        """In order, without waiting. While nobody listens it is lost: what matters is said again over a new connection.

        What cannot be sent ends the connection, which is told by `broken`.
        """
        if self._unsent is not None:
            self._unsent.put(message)

    def say_threadsafe(self, message: FromMember) -> None:
        """The same from any thread: the loop says it, so that nothing comes before what a connection begins with."""
        self._tell(self.say, message)

    async def finish(self) -> None:
        """Hang up once all was sent."""
        sender, unsent = self._sender, self._unsent
        if sender is not None and unsent is not None:
            unsent.put(None)
            await asyncio.to_thread(sender.join)
        self.hang_up()

    def hang_up(self) -> None:
        """End the connection; the thread that reads it closes it."""
        connection, self._connection = self._connection, None
        unsent, self._unsent = self._unsent, None
        if connection is None:
            return
        if unsent is None:
            connection.close()  # nobody reads it yet
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
                message, _ = connection.receive(ToMember, time.monotonic() + _FOREVER, tail_limit=0)
                self._tell(self._hear, connection, message)
        self._tell(self._ended, connection)

    def _tell(self, what: Callable[..., None], *about: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what, *about)

    def _hear(self, connection: Connection, message: ToMember) -> None:
        if connection is self._connection:
            self._heard(message)

    def _ended(self, connection: Connection) -> None:
        if connection is self._connection:
            self.hang_up()
            self._broken()


def _send(connection: Connection, unsent: _Unsent) -> None:
    with contextlib.suppress(WireError):
        while (message := unsent.get()) is not None:
            connection.send_frame(_encode(message), deadline=time.monotonic() + _ATTEMPT)
        return
    connection.abort()
