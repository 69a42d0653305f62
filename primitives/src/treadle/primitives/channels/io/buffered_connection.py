"""A connection in the member's loop. It never blocks, and buffers bytes that the kernel does not accept."""

from __future__ import annotations

import select
from collections import deque

from ...stores.atomic_files import Buffer
from ...wire import Connection, ConnectionClosed, WireError
from ...wire.framing import LENGTHS, Decoder
from ...wire.transports import Plain


class Link:
    """Sends and receives heads of frames over an authenticated connection, which it owns from now on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.name = connection.name
        self._transport = connection.transport
        self._plain = isinstance(self._transport, Plain)
        self._decoder = Decoder()
        self._early = connection.unread()
        self._queue: deque[Buffer] = deque()

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def source(self) -> tuple[str, int]:
        """The local address; its host is this machine's address as the other side sees it."""
        host, port = self._connection.sock.getsockname()[:2]
        return host, port

    @property
    def events(self) -> int:
        """The epoll events to wait for."""
        return select.EPOLLIN | select.EPOLLOUT if self._queue else select.EPOLLIN

    def send(self, head: bytes) -> bool:
        """Send a frame; False when some of it is buffered until `flush`. Raises WireError."""
        frame = LENGTHS.pack(len(head), 0) + head
        if not self._queue:
            return self._try(frame)
        self._queue.append(frame)
        return False

    def flush(self) -> None:
        """Send buffered bytes, as many as the kernel accepts. Raises WireError."""
        while self._queue and self._try(self._queue.popleft()):
            pass

    def _try(self, data: Buffer) -> bool:
        """Return whether all of `data` was sent; the rest goes to the front of the queue."""
        try:
            sent = self._transport.send((data,))
        except (OSError, ValueError) as error:
            raise WireError(f"the connection to {self.name} was lost: {error}") from error
        if sent == len(data):
            return True
        self._queue.appendleft(memoryview(data)[max(sent, 0) :])  # below 0: it would block
        return False

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived. Raises WireError; ConnectionClosed at the end."""
        heads: list[bytes] = []
        if self._early:
            heads, self._early = self._decoder.feed(self._early), b""
        while True:
            room = self._decoder.room()
            try:
                count = self._transport.receive(room)
            except (OSError, ValueError) as error:
                raise WireError(f"the connection to {self.name} was lost: {error}") from error
            if count < 0:
                return heads
            if count == 0:
                if heads:
                    return heads  # the next call raises
                raise ConnectionClosed(f"{self.name} closed the connection")
            heads += self._decoder.advance(count)
            if self._plain and count < len(room):
                return heads

    def close(self) -> None:
        self._connection.close()
