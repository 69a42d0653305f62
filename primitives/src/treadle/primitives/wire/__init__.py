"""Messages between two processes of a run: framed, authenticated before any decoding, encrypted off loopback.

`Connection` is for threads (`connect`, `listen` and `accept`; `dialled` for a socket connected elsewhere). A shell with
its own event loop brings its sockets, and uses `Handshake`, `encode` and `Decoder`. Every wait has a deadline, a time
of `time.monotonic()`. Only TLS connections import ssl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..addresses import Address, is_loopback, parse
from ..lazy_import import late
from .blocking_connection import Connection
from .connect import accept, address_of, connect, dialled, incoming, listen, welcome
from .errors import ConnectionClosed, NotAuthentic, TimedOut, WireError
from .framing import Decoder, encode
from .handshake import Handshake, KeyOf

if TYPE_CHECKING:
    from .tls import Identity, identity_of, tls_identity

__getattr__ = late(__name__, dict.fromkeys(("Identity", "identity_of", "tls_identity"), ".tls"))

__all__ = [
    "Address",
    "Connection",
    "ConnectionClosed",
    "Decoder",
    "Handshake",
    "Identity",
    "KeyOf",
    "NotAuthentic",
    "TimedOut",
    "WireError",
    "accept",
    "address_of",
    "connect",
    "dialled",
    "encode",
    "identity_of",
    "incoming",
    "is_loopback",
    "listen",
    "parse",
    "tls_identity",
    "welcome",
]
