"""The items of a queue in a socket of this machine, which gives each receiver a whole one: SOCK_SEQPACKET, see unix(7).

No process holds a lock while it takes or sends an item, so a killed process blocks no other.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from multiprocessing import connection, reduction
from typing import Any

from treadle.primitives.objects.large_values import LARGE

from .by_value import loads
from .places import packed, remove, unpacked

_ITEM, _FILE = b"i", b"f"
"""First byte of a packet: the rest is the item, or the name of the file that holds it."""


class SocketEnd(connection._ConnectionBase):
    """Both ends of a queue."""

    def __init__(self, receiver: int, sender: int, count: int) -> None:
        super().__init__(receiver)
        self._receiver, self._sender = socket.socket(fileno=receiver), socket.socket(fileno=sender)
        self._count = count
        """An eventfd whose value is the number of items."""
        for one in (self._receiver, self._sender):
            one.setblocking(True)

    @classmethod
    def new(cls) -> SocketEnd:
        receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(receiver.detach(), sender.detach(), os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC))

    def __reduce__(self) -> Any:
        return _rebuilt, tuple(map(reduction.DupFd, (self.fileno(), self._sender.fileno(), self._count)))

    def offer(self, data: bytes, now: bool) -> bool:
        """Count an item, and send it `now` if the socket has room for it; returns whether it is sent."""
        os.eventfd_write(self._count, 1)
        with contextlib.suppress(BlockingIOError):
            if now:
                self.send_counted(data, socket.MSG_DONTWAIT)
                return True
        return False

    def _send_bytes(self, data: Any) -> None:
        os.eventfd_write(self._count, 1)
        self.send_counted(data)

    def send_counted(self, data: bytes, flags: int = 0) -> None:
        """Send an item that is counted."""
        item = data if len(data) <= LARGE else packed(bytes(data))
        packet = (_FILE, item.encode()) if isinstance(item, str) else (_ITEM, item)
        try:
            self._sender.sendmsg(packet, (), flags)
        except OSError:
            if isinstance(item, str):
                remove(item)
            raise

    def take(self, timeout: float | None = None) -> Any:
        """Wait for an item. Raises TimeoutError."""
        ends = time.monotonic() + (timeout or 0.0)
        while timeout is None or self.poll(max(0.0, ends - time.monotonic())):
            with contextlib.suppress(BlockingIOError):  # another process took it
                return self._taken(self._receiver.recv(LARGE + 1, 0 if timeout is None else socket.MSG_DONTWAIT))
        raise TimeoutError

    def _taken(self, packet: bytes) -> Any:
        os.eventfd_read(self._count)
        return unpacked(packet[1:].decode()) if packet[:1] == _FILE else memoryview(packet)[1:]

    def recv(self) -> Any:
        return loads(self.take())

    def size(self) -> int:
        """Return the number of items."""
        with open(f"/proc/self/fdinfo/{self._count}") as file:
            value = next(line.split()[1] for line in file if line.startswith("eventfd-count:"))
        return int(value, 16)  # see proc(5)

    def _poll(self, timeout: float | None) -> bool:
        return bool(connection.wait([self], timeout))

    def _close(self) -> None:
        self._sender.close()
        self._receiver.close()
        os.close(self._count)
        self._count = -1  # another thread may send meanwhile


def _rebuilt(*descriptors: Any) -> SocketEnd:
    return SocketEnd(*(one.detach() for one in descriptors))
