"""Non-blocking sockets with a common interface, plain (here) and encrypted (`tls.Encrypted`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol

from ..stores.atomic_files import Buffer

WANT_READ, WANT_WRITE = -1, -2
"""The call would block: wait until the socket is readable, or writable, and repeat it."""
_VECTORS = 512


class Transport(Protocol):
    """Every method but the last may return WANT_READ or WANT_WRITE, and raises OSError."""

    buffers: bool
    """Decrypted bytes may be waiting although the socket is not readable."""

    def send(self, views: Sequence[Buffer]) -> int:
        """Return the number of bytes accepted."""

    def receive(self, view: memoryview) -> int:
        """Return the number of bytes received; 0 at the end."""

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        """Return the number of bytes accepted from the file; 0 at its end."""

    def secure(self) -> int:
        """Advance the TLS handshake, before any other call; returns 0 when it is done."""

    def certificate(self) -> bytes:
        """Return the digest of the server's certificate to a client; b"" without TLS."""


class Plain:
    """TCP or a Unix socket, without encryption."""

    buffers = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, views: Sequence[Buffer]) -> int:
        try:
            if len(views) == 1:
                return self._sock.send(views[0])
            return self._sock.sendmsg(views if len(views) <= _VECTORS else views[:_VECTORS])
        except BlockingIOError:
            return WANT_WRITE

    def receive(self, view: memoryview) -> int:
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return WANT_READ

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        """Within the kernel."""
        try:
            return os.sendfile(self._sock.fileno(), descriptor, offset, count)
        except BlockingIOError:
            return WANT_WRITE

    def secure(self) -> int:
        return 0

    def certificate(self) -> bytes:
        return b""
