"""Non-blocking sockets behind the same calls, plain (here) and encrypted (`tls.Encrypted`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol

from ..stores.atomic_files import Buffer

WANT_READ, WANT_WRITE = -1, -2
"""Nothing could be done now: wait until the socket is readable, or writable, and call again."""
_VECTORS = 512


class Transport(Protocol):
    """Every method but the last may answer WANT_READ or WANT_WRITE, and raises OSError."""

    buffers: bool
    """Whether bytes may be here already when the socket is not readable."""

    def send(self, views: Sequence[Buffer]) -> int:
        """How many bytes were taken."""

    def receive(self, view: memoryview) -> int:
        """How many bytes came; 0 at the end."""

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        """How many bytes of the file were taken; 0 at its end."""

    def secure(self) -> int:
        """Agree on encryption, before anything is sent; 0 when that is done."""

    def certificate(self) -> bytes:
        """Digest of the one the server has shown to this client; b"" without TLS."""


class Plain:
    """TCP as it is."""

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
