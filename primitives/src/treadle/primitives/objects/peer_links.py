"""Connections that a keeper dials to other keepers. Messages to a keeper that cannot be reached are dropped.

A handshake names the keeper, not a run: nobody takes another keeper, which has got the address since, for this one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..addresses import parse
from ..asyncio_tasks import spawn
from ..errors import TreadleError
from ..wire.handshake import Handshake
from ..wire.server_connection import ServerConnection
from .messages import address_of

MESSAGE_BYTES = 16 << 20
UNREAD_BYTES = 256 << 20
"""A keeper that leaves so many bytes unread is cut off: it gets the state again."""
_AGAIN = 0.1
"""Seconds between two attempts to reach a keeper."""
_HELD = 1000
"""Messages that are held while a connection is made."""


class PeerLinks:
    """One connection to each other keeper. `lost` is called when one ends or cannot be made."""

    def __init__(self, key: bytes, hello: bytes, lost: Callable[[str], None]) -> None:
        self._key, self._hello, self._lost = key, hello, lost
        self._links: dict[str, _Link] = {}
        self._closed = False

    def send(self, keeper: str, heads: list[bytes]) -> None:
        link = self._links.get(keeper)
        if link is None or link.over_for(_AGAIN):
            link = self._links[keeper] = _Link(self, keeper)
        link.send(heads)

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()

    # -- for links

    def handshake(self, keeper: str) -> Handshake:
        return Handshake.client(keeper, self._key)

    def hello(self) -> bytes:
        return self._hello

    def lost(self, keeper: str) -> None:
        if not self._closed:
            self._lost(keeper)


class _Link:
    """Owner of one connection."""

    def __init__(self, links: PeerLinks, keeper: str) -> None:
        self._links, self._keeper = links, keeper
        self._held: list[bytes] = [links.hello()]
        self._connection: ServerConnection | None = None
        self._ended: float | None = None
        self._task = spawn(self._dial(), name=f"link to {keeper}")

    def over_for(self, seconds: float) -> bool:
        return self._ended is not None and time.monotonic() - self._ended > seconds

    def send(self, heads: list[bytes]) -> None:
        if self._ended is not None:
            return
        if self._connection is not None:
            self._connection.write(heads)
        elif len(self._held) < _HELD:
            self._held += heads

    def close(self) -> None:
        self._task.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def _dial(self) -> None:
        loop, target = asyncio.get_running_loop(), parse(address_of(self._keeper))

        def protocol() -> ServerConnection:
            shake = self._links.handshake(self._keeper)
            return ServerConnection(self, shake, 0, None, message_bytes=MESSAGE_BYTES, unread_bytes=UNREAD_BYTES)

        try:
            if target.scheme == "unix":
                await loop.create_unix_connection(protocol, f"\0{target.host}")
            else:
                from ..wire.tls import client_context

                tls = client_context() if target.scheme == "tls" else None
                await loop.create_connection(protocol, target.host, target.port, ssl=tls)
        except OSError:
            self._end()

    def _end(self) -> None:
        if self._ended is None:
            self._ended, self._connection = time.monotonic(), None
            self._links.lost(self._keeper)

    # -- called by the connection

    def began(self, connection: ServerConnection) -> None:
        """Nothing is proved yet."""

    def admitted(self, connection: ServerConnection) -> None:
        self._connection = connection
        held, self._held = self._held, []
        connection.write(held)

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:  # noqa: ARG002
        raise TreadleError("a keeper answers over its own connection")

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:  # noqa: ARG002
        self._end()
