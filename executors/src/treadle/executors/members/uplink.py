"""A member's connection to its coordinator, for an event loop: a thread reads, sending is handed to threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

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


class Uplink:
    """`heard` gets messages and `broken` is called once for each connection that ends, both in the loop."""

    def __init__(
        self, address: str, run: str, key: bytes, heard: Callable[[ToMember], None], broken: Callable[[], None]
    ) -> None:
        self._address, self._run, self._key = address, run, key
        self._heard, self._broken = heard, broken
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._sending = asyncio.Lock()

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
        """Hear what comes over the new connection."""
        assert self._connection is not None
        threading.Thread(target=self._read, args=(self._connection,), name="treadle-uplink", daemon=True).start()

    async def send(self, message: FromMember) -> None:
        """In order. What cannot be sent ends the connection, which is told by `broken`."""
        async with self._sending:
            connection = self._connection
            if connection is None or connection.closed:
                return
            try:
                await asyncio.to_thread(connection.send_frame, _encode(message), deadline=time.monotonic() + _ATTEMPT)
            except WireError:
                connection.abort()

    def hang_up(self) -> None:
        """End the connection; the thread that reads it closes it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _connect(self) -> Connection:
        deadline = time.monotonic() + _ATTEMPT
        return connect(self._address, self._run, self._key, deadline=deadline, source=ANY)

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
            self._connection = None
            self._broken()
