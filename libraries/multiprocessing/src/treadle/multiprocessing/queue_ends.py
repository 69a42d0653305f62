"""Where the items of a queue are: in a socket of this machine, or at a keeper.

No process holds a lock while it takes or sends an item, so a killed process blocks no other.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from functools import partial
from multiprocessing import connection, reduction
from typing import Any

from treadle.primitives.errors import TreadleError
from treadle.primitives.objects import CallWaitExpired, Handle
from treadle.primitives.objects.large_values import LARGE

from .by_value import loads
from .places import packed, presence, remove, unpacked
from .state import QueueItems
from .synchronize import waited

_WATCH_SECONDS = 1.0
"""After which the thread of a watch looks whether it is still needed."""
_ITEM, _FILE = b"i", b"f"
"""First byte of a packet: the rest is the item, or the name of the file that holds it."""


class End:
    """Both ends of a queue, with the methods of a connection that the queue needs."""

    closed = False

    def recv_bytes(self, timeout: float | None = None) -> Any:
        """Wait for a pickled item. Raises TimeoutError."""
        raise NotImplementedError

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Return whether there is an item in time."""
        raise NotImplementedError

    def recv(self) -> Any:
        return loads(self.recv_bytes())

    def close(self) -> None:
        """Refuse later calls. The items stay for other processes."""
        self.closed = True

    def _check(self) -> None:
        if self.closed:
            raise OSError("handle is closed")


class SocketEnd(End):
    """Items in a socket of this machine, which gives each receiver a whole one: `SOCK_SEQPACKET`, see unix(7)."""

    def __init__(self, sender: int, receiver: int, count: int) -> None:
        self._sender, self._receiver = socket.socket(fileno=sender), socket.socket(fileno=receiver)
        self._count = count
        """An eventfd whose value is the number of items."""
        for one in (self._sender, self._receiver):
            one.setblocking(True)

    @classmethod
    def new(cls) -> SocketEnd:
        sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(sender.detach(), receiver.detach(), os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC))

    def __reduce__(self) -> Any:
        self._check()
        return _rebuilt, tuple(map(reduction.DupFd, (self._sender.fileno(), self._receiver.fileno(), self._count)))

    def offer(self, data: bytes, now: bool) -> bool:
        """Count an item, and send it `now` if the socket has room for it; returns whether it is sent."""
        os.eventfd_write(self._count, 1)
        with contextlib.suppress(BlockingIOError):
            if now:
                self.send(data, socket.MSG_DONTWAIT)
                return True
        return False

    def send_bytes(self, data: bytes) -> None:
        self._check()
        os.eventfd_write(self._count, 1)
        self.send(data)

    def send(self, data: bytes, flags: int = 0) -> None:
        """Send an item that is counted."""
        item = data if len(data) <= LARGE else packed(data)
        packet = (_FILE, item.encode()) if isinstance(item, str) else (_ITEM, item)
        try:
            self._sender.sendmsg(packet, (), flags)
        except OSError:
            remove(item)
            raise

    def recv_bytes(self, timeout: float | None = None) -> Any:
        self._check()
        ends = time.monotonic() + (timeout or 0.0)
        while timeout is None or self.poll(ends - time.monotonic()):
            with contextlib.suppress(BlockingIOError):  # another process took it
                return self._taken(self._receiver.recv(LARGE + 1, 0 if timeout is None else socket.MSG_DONTWAIT))
        raise TimeoutError

    def _taken(self, packet: bytes) -> Any:
        os.eventfd_read(self._count)
        return unpacked(packet[1:].decode()) if packet[:1] == _FILE else memoryview(packet)[1:]

    def size(self) -> int:
        """Return the number of items."""
        with open(f"/proc/self/fdinfo/{self._count}") as file:
            value = next(line.split()[1] for line in file if line.startswith("eventfd-count:"))
        return int(value, 16)  # see proc(5)

    def fileno(self) -> int:
        return self._receiver.fileno()

    def poll(self, timeout: float | None = 0.0) -> bool:
        self._check()
        return bool(connection.wait([self._receiver], timeout))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sender.close()
            self._receiver.close()
            os.close(self._count)

    __del__ = close


def _rebuilt(*descriptors: Any) -> SocketEnd:
    return SocketEnd(*(one.detach() for one in descriptors))


class KeeperEnd(End):
    """Items at a keeper. While it has many bytes of them, they are files."""

    def __init__(self, channel: Handle[QueueItems]) -> None:
        self.channel = channel
        self._watch: Watch | None = None

    def __reduce__(self) -> Any:
        return KeeperEnd, (self.channel,)

    def offer(self, data: bytes, now: bool) -> bool:  # noqa: ARG002  there is room
        self.send_bytes(data)
        return True

    def send_bytes(self, data: bytes) -> None:
        self._check()
        try:
            self.channel.within(0.0).put(presence(), packed(data))
        except CallWaitExpired:
            self.channel.put(presence(), packed(data, least=0))

    def recv_bytes(self, timeout: float | None = None) -> Any:
        self._check()
        channel = self.channel if timeout is None else self.channel.within(max(0.0, timeout))
        item = channel.get(presence())
        if self._watch is not None:
            self._watch.look()
        return unpacked(item)

    def size(self) -> int:
        return int(self.channel.size())

    def fileno(self) -> int:
        """Return a descriptor for `connection.wait`. It is readable while there are items."""
        self._check()
        if self._watch is None:
            self._watch = Watch(self, self.channel)
        return self._watch.descriptor

    def poll(self, timeout: float | None = 0.0) -> bool:
        self._check()
        return self.channel.has_items() if timeout == 0.0 else waited(self.channel, "ready", timeout)

    def close(self) -> None:
        super().close()
        if self._watch is not None:
            self._watch.end()


class Watch:
    """Makes a descriptor readable while there are items, as far as this process knows, as long as its owner lives."""

    def __init__(self, owner: object, channel: Handle[Any], *arguments: Any) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ready = partial(channel.within(_WATCH_SECONDS).ready, *arguments)
        self._changed, self._taken, self._ended = threading.Condition(), 0, False
        weakref.finalize(owner, self.end)
        threading.Thread(target=self._run, name="treadle-queue-watch", daemon=True).start()

    def look(self) -> None:
        """An item was taken: look whether there is another one."""
        with self._changed, contextlib.suppress(BlockingIOError):
            self._taken += 1
            self._changed.notify()
            os.eventfd_read(self.descriptor)

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self) -> None:
        with contextlib.suppress(TreadleError):  # the keeper has ended
            while not self._ended:
                taken = self._taken
                with contextlib.suppress(CallWaitExpired):
                    self._ready()
                    self._announce(taken)
            os.close(self.descriptor)

    def _announce(self, taken: int) -> None:
        """There were items when `taken` of them had been taken. Say so, and wait until one more is."""
        with self._changed:
            if self._taken == taken:
                os.eventfd_write(self.descriptor, 1)
                self._changed.wait_for(lambda: self._ended or self._taken != taken)
