"""Messages between two processes of a run: framed, authenticated before anything is decoded, encrypted off loopback.

`Connection` (`connect`, `listen` and `accept`; `dialled` for a socket connected elsewhere) is for threads,
`AsyncConnection` (`open_connection`, `serve`) for asyncio; both speak the same. Every wait has a deadline, a moment
of `time.monotonic()`. asyncio and ssl are imported only by what needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .addresses import Address, is_loopback, parse
from .blocking import Connection
from .dialling import accept, address_of, connect, dialled, incoming, listen, welcome
from .errors import Closed, NotAuthentic, TimedOut, WireError
from .framing import Decoder, Frame, encode
from .handshake import Handshake, KeyOf

if TYPE_CHECKING:
    from .streams import AsyncConnection, Server, open_connection, serve
    from .tls import Identity, tls_identity

_LATE = {
    "AsyncConnection": "streams",
    "Server": "streams",
    "open_connection": "streams",
    "serve": "streams",
    "Identity": "tls",
    "tls_identity": "tls",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(f".{_LATE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Address",
    "AsyncConnection",
    "Closed",
    "Connection",
    "Decoder",
    "Frame",
    "Handshake",
    "Identity",
    "KeyOf",
    "NotAuthentic",
    "Server",
    "TimedOut",
    "WireError",
    "accept",
    "address_of",
    "connect",
    "dialled",
    "encode",
    "incoming",
    "is_loopback",
    "listen",
    "open_connection",
    "parse",
    "serve",
    "tls_identity",
    "welcome",
]
