"""Messages between two processes of a run: framed, authenticated before anything is decoded, encrypted off loopback.

`Connection` (`connect`, `listen` and `accept`; `dialled` for a socket connected elsewhere) is for threads. A shell with
a loop of its own brings its sockets, and uses `Handshake`, `encode` and `Decoder`. Every wait has a deadline, a moment
of `time.monotonic()`. ssl is imported only by what needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..addresses import Address, is_loopback, parse
from ..lazy_import import late
from .blocking_connection import Connection
from .connect import accept, address_of, connect, dialled, incoming, listen, welcome
from .errors import Closed, NotAuthentic, TimedOut, WireError
from .framing import Decoder, encode
from .handshake import Handshake, KeyOf

if TYPE_CHECKING:
    from .tls import Identity, tls_identity

__getattr__ = late(__name__, {"Identity": ".tls", "tls_identity": ".tls"})

__all__ = [
    "Address",
    "Closed",
    "Connection",
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
    "incoming",
    "is_loopback",
    "listen",
    "parse",
    "tls_identity",
    "welcome",
]
