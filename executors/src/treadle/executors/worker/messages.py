"""The messages between a driver and its worker process, and their framing on the socket.

Driver to worker: one `Setup`, then a `RunTask` for each task. Worker to driver: `Ready`, then for each task its reports
and `TaskDone`. A frame is a four-byte length, big-endian, and a MessagePack body.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ..program import Failure, Outcome, Task


class Setup(Struct, frozen=True):
    """The first message, valid for the life of the process."""

    driver: int
    """Process id. A worker with a different parent has already lost its driver."""
    host_root: str | None
    cache_bytes: int
    room: int = 0
    """Bytes of records that may wait in memory for tasks that do not set a memory; 0: no limit."""
    folder: str = ""
    """The process's own folder, in which it was started; empty: it creates one."""


class RunTask(Struct, frozen=True):
    task: Task
    key: bytes
    """The run's key."""
    memory: int = 0
    """Bytes the attempt may allocate; 0: no limit."""
    secrets: dict[str, str] = {}
    """Values of the program's secrets, resolved by the driver."""


class Ready(Struct, frozen=True, tag="ready"):
    """The worker is set up."""


class TaskDone(Struct, frozen=True, tag="done"):
    """Every partition of the task has been reported."""


Reply = Outcome | Failure | Ready | TaskDone

HEADER = 4


class FrameBuffer:
    """Splits a byte stream into frame bodies."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now, in order."""
        buffer = self._bytes
        buffer += data
        bodies = []
        start = 0
        while len(buffer) - start >= HEADER:
            end = start + HEADER + int.from_bytes(buffer[start : start + HEADER], "big")
            if end > len(buffer):
                break
            bodies.append(bytes(buffer[start + HEADER : end]))
            start = end
        del buffer[:start]
        return bodies


class FrameEncoder:
    """Encodes messages into one reused buffer."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray(65536)

    def encode(self, *messages: Any) -> bytearray:
        """The frames of the messages; valid until the next call."""
        buffer = self._buffer
        start = 0
        for message in messages:
            self._encoder.encode_into(message, buffer, start + HEADER)
            buffer[start : start + HEADER] = (len(buffer) - start - HEADER).to_bytes(HEADER, "big")
            start = len(buffer)
        return buffer
