"""A borrower's connection to one driver that lends slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from treadle.primitives.wire import WireError, parse
from treadle.primitives.wire.handshake import Handshake
from treadle.primitives.wire.message_codec import decoder, encode_head
from treadle.primitives.wire.server_connection import ServerConnection

from .messages import MESSAGE_BYTES, FromBorrower, HostSlots, Lent, TaskOver, TaskReport, ToBorrower

A = TypeVar("A", HostSlots, Lent)
DIAL_SECONDS = 3.0
"""Time for a driver to accept the connection and prove that it holds the run's key."""
_decode: Callable[[bytes, str], ToBorrower] = decoder(ToBorrower)


class HostLink:
    """For one attempt of a gang. `heard` gets what tasks report; `lost` is called when the connection has ended."""

    def __init__(
        self, address: str, heard: Callable[[TaskReport | TaskOver], None], lost: Callable[[HostLink], None]
    ) -> None:
        self.address = address
        self._heard, self._lost = heard, lost
        self._answers: asyncio.Queue[HostSlots | Lent | None] = asyncio.Queue()
        """None: the connection has ended."""
        self._proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection: ServerConnection | None = None

    async def dial(self, run: str, key: bytes) -> None:
        """Connect. Raises WireError and TimeoutError."""
        target = parse(self.address)
        if target.scheme == "tls":
            from treadle.primitives.wire.tls import client_context

            context = client_context()
        else:
            context = None

        def protocol() -> ServerConnection:
            return ServerConnection(self, Handshake.client(run, key), 0, None, message_bytes=MESSAGE_BYTES)

        async with asyncio.timeout(DIAL_SECONDS):
            try:
                await asyncio.get_running_loop().create_connection(protocol, target.host, target.port, ssl=context)
            except OSError as error:
                raise WireError(f"the driver at {self.address} cannot be reached: {error}") from error
            await self._proved

    @property
    def open(self) -> bool:
        return self._connection is not None

    def send(self, message: FromBorrower) -> None:
        if self._connection is not None:
            self._connection.write([encode_head(message)])

    async def ask(self, message: FromBorrower, kind: type[A]) -> A:
        """Send a message and return its answer. Raises WireError when the connection ends before."""
        self.send(message)
        answer = await self._answers.get()
        if not isinstance(answer, kind):
            raise WireError(f"the driver at {self.address} has ended the connection, or lends no slots")
        return answer

    def close(self) -> None:
        """The lender ends the tasks that still run, and frees the slots."""
        if self._connection is not None:
            self._connection.close()

    # -- called by the connection ----------

    def began(self, connection: ServerConnection) -> None:
        self._connection = connection

    def admitted(self, connection: ServerConnection) -> None:  # noqa: ARG002
        if not self._proved.done():
            self._proved.set_result(None)

    def arrived(self, connection: ServerConnection, heads: Sequence[bytes]) -> None:
        for head in heads:
            message = _decode(head, connection.address)
            if isinstance(message, TaskReport | TaskOver):
                self._heard(message)
            else:
                self._answers.put_nowait(message)

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:  # noqa: ARG002
        self._connection = None
        self._answers.put_nowait(None)
        if not self._proved.done():
            self._proved.set_exception(WireError(f"the driver at {self.address} has ended the connection: {why}"))
        self._lost(self)
