"""Messages between this process and its workers, and the budget of a job.

request   8 bytes length, big-endian; pickle of (name of the job, arguments)
answer    8 bytes length, big-endian; pickle of ("value", value), ("unfit" | "usage", message, hint) or ("memory",)
"""

from __future__ import annotations

import socket
import struct

CPU_SECONDS = 2.0
"""Seconds of processor time for one job. 1 MiB of data and a schema of twenty keywords take about 0.5 s."""
MEMORY_BYTES = 1 << 30
"""Limit of a worker's own data."""
LENGTH = struct.Struct(">Q")


def receive(sock: socket.socket) -> bytes:
    """Return the next message. Raises EOFError at the end, OSError."""
    return _exactly(sock, LENGTH.unpack(_exactly(sock, LENGTH.size))[0])


def send(sock: socket.socket, message: bytes) -> None:
    """Send a message. Raises OSError."""
    sock.sendall(LENGTH.pack(len(message)) + message)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
