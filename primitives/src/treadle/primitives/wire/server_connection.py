"""One side of a connection in an event loop: the challenge, frames, and a bounded write buffer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol, cast

from ..addresses import Address
from ..errors import TreadleError
from .acceptor import AcceptedConnection
from .connect import prepare
from .errors import NotAuthentic, TimedOut, WireError
from .framing import Decoder, encode
from .handshake import MESSAGE_LIMIT, Handshake
from .peer_process import process_of

MESSAGE_BYTES = 1 << 20
"""Length limit of a message to the server."""
UNREAD_BYTES = 4 << 20
"""Unread bytes above which a connection ends, so that others need not wait for it."""
CLOSING_SECONDS = 2.0
"""Time for the last bytes to be read before the connection is aborted."""


class ConnectionOwner(Protocol):
    """The callbacks of a connection to its server."""

    def began(self, connection: ServerConnection) -> None:
        """A connection was made."""

    def admitted(self, connection: ServerConnection) -> None:
        """The other side has proved that it holds the key of `connection.run`."""

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:
        """Messages arrived, still encoded. Raises TreadleError for an invalid message, which ends the connection."""

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:
        """The connection is closed; `why` is None when no error occurred."""


class ServerConnection(asyncio.BufferedProtocol):
    """One side of a connection. It receives straight into the decoder's buffer, and writes a batch with one call."""

    def __init__(
        self,
        owner: ConnectionOwner,
        handshake: Handshake,
        number: int,
        caller: AcceptedConnection | None,
        *,
        message_bytes: int = MESSAGE_BYTES,
        unread_bytes: int = UNREAD_BYTES,
    ) -> None:
        """`caller`: None for the side that dials, whose handshake is a client's."""
        self.number = number
        self.address = ""
        """The address of the other end, as the server sees it."""
        self.process = 0
        """The id of the process at the other end of a Unix socket."""
        self._owner, self._handshake, self._caller = owner, handshake, caller
        self._message_bytes, self._unread_bytes = message_bytes, unread_bytes
        self._decoder = Decoder(MESSAGE_LIMIT)
        self._transport: asyncio.Transport
        self._closing: asyncio.TimerHandle | None = None
        self._why: Exception | None = None
        self._told = False
        """The owner knows the end."""

    @property
    def run(self) -> str:
        return self._handshake.run

    def write(self, heads: list[bytes]) -> None:
        """Write messages. Ends the connection when too many bytes are still unread."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > self._unread_bytes:
            self._fail(TimedOut(f"{self.address} does not read what is sent to it", "It may be busy or cut off."))
            return
        try:
            self._transport.write(b"".join(buffer for head in heads for buffer in encode(head)))
        except WireError as error:
            self._fail(error)

    def rest(self) -> None:
        """The other side must close the connection, or send a message, within the limit for strangers."""
        if self._caller is not None:
            self._caller.unproved()

    def work(self) -> None:
        """End the time limit of `rest`."""
        if self._caller is not None:
            self._caller.proved()

    def close(self) -> None:
        """Close the connection once everything is written, or after `CLOSING_SECONDS`."""
        self._transport.close()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(CLOSING_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    def _fail(self, why: Exception) -> None:
        self._why = self._why or why
        self._transport.abort()

    # -- called by the event loop ----------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        with contextlib.suppress(OSError):  # the other side may have disconnected already
            prepare(transport.get_extra_info("socket"))
            self.process = process_of(transport.get_extra_info("socket"))
        self.address = _peer_of(transport)
        if self._caller is not None:
            self._caller.made(self._transport)
        self._owner.began(self)
        if not self._handshake.is_server:
            self.write([self._handshake.opening(_certificate_of(transport))])

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._decoder.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            heads = self._decoder.advance(nbytes)
            while heads and not self._handshake.done:
                self._greet(heads.pop(0))
            if heads and not self._transport.is_closing():
                self._owner.arrived(self, heads)
        except NotAuthentic as error:
            self._deny(error)
        except TreadleError as error:
            self._fail(error)

    def _greet(self, message: bytes) -> None:
        answer = self._handshake.receive(message)
        if answer:
            self.write([answer])
        if self._handshake.done:
            if self._caller is not None:
                self._caller.proved()
            self._decoder.head_limit = self._message_bytes
            self._owner.admitted(self)

    def _deny(self, why: NotAuthentic) -> None:
        self._why = self._why or why
        if words := self._handshake.last_words:
            self.write([words])
        self.close()

    def eof_received(self) -> None:
        """Tell the owner at once, since the event loop calls `connection_lost` after messages of other connections."""
        self._tell_end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._caller is not None:
            self._caller.gone()
        del self._decoder  # free its buffer now: this object lives until the cycle collector runs
        if self._closing is not None:
            self._closing.cancel()
        self._tell_end(exc)

    def _tell_end(self, why: Exception | None) -> None:
        if not self._told:
            self._told = True
            self._owner.ended(self, self._why or why)


def _certificate_of(transport: asyncio.BaseTransport) -> bytes:
    """The digest of the certificate that the dialled side has shown; empty without TLS."""
    encrypted = transport.get_extra_info("ssl_object")
    if encrypted is None:
        return b""
    from .tls import server_digest

    return server_digest(encrypted)


def _peer_of(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername") or ("?", 0)
    if not isinstance(peer, tuple):  # a Unix socket
        return str(Address("unix", "", 0))
    scheme = "tcp" if transport.get_extra_info("ssl_object") is None else "tls"
    return str(Address(scheme, *peer[:2]))
