"""Non-blocking sockets behind the same calls, plain (here) and encrypted (`tls.Encrypted`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol

from ..whole_files import Buffer

AGAIN = -1
"""Nothing could be done now: wait until the socket is ready."""
_VECTORS = 512


class Transport(Protocol):
    def send(self, views: Sequence[Buffer]) -> int:
        """How many bytes were taken, or AGAIN. Raises OSError."""

    def receive(self, view: memoryview) -> int:
        """How many bytes came, 0 at the end, or AGAIN. Raises OSError."""

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        """How many bytes of the file were taken, or AGAIN. Raises OSError."""


class Plain:
    """TCP as it is."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, views: Sequence[Buffer]) -> int:
        try:
            return self._sock.sendmsg(views if len(views) <= _VECTORS else views[:_VECTORS])
        except BlockingIOError:
            return AGAIN

    def receive(self, view: memoryview) -> int:
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return AGAIN

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        """Within the kernel."""
        try:
            return os.sendfile(self._sock.fileno(), descriptor, offset, count)
        except BlockingIOError:
            return AGAIN
