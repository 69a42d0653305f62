"""Connections whose messages are at a keeper: ends of pipes between machines, and queues.

No process holds a lock while it waits, so a killed process blocks no other.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from treadle.primitives.objects import CallWaitExpired, Handle
from treadle.primitives.objects.watch import Watch

from .places import packed, presence, unpacked
from .state import QueueItems
from .synchronize import waited


class KeeperConnection(connection._ConnectionBase):
    """A connection over an object with the methods `put`, `get`, `ready` and `has_items`."""

    _check_closed: Callable[[], None]
    _watch: Watch | None = None

    def __init__(self, channel: Handle[Any], key: Callable[[], int], *ways: bool) -> None:
        """`key`: the first argument of the methods. `ways`: whether it is readable, and writable; it is both."""
        super().__init__(0, *ways)
        self.channel, self._key = channel, key

    def fileno(self) -> int:
        """Return a descriptor for `connection.wait`. It is readable while there is something to receive."""
        self._check_closed()
        if self._watch is None:
            self._watch = Watch(self, self.channel, "ready", self._key())
        return self._watch.descriptor

    def take(self, timeout: float | None = None) -> bytes:
        """Wait for a message. Raises TimeoutError."""
        self._check_closed()
        channel = self.channel if timeout is None else self.channel.within(max(0.0, timeout))
        item = channel.get(self._key())
        if self._watch is not None:
            self._watch.look()
        return unpacked(item)

    def _recv_bytes(self, maxsize: int | None = None) -> io.BytesIO | None:
        data = self.take()
        if maxsize is not None and len(data) > maxsize:
            return None
        found = io.BytesIO()
        found.write(data)
        return found

    def _poll(self, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return bool(self.channel.has_items(self._key()))
        return waited(self.channel, "ready", timeout, self._key())

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.end()


class QueueEnd(KeeperConnection):
    """Both ends of a queue. While the keeper has many bytes of items, they are files."""

    channel: Handle[QueueItems]

    def __reduce__(self) -> Any:
        return QueueEnd, (self.channel, presence)

    def offer(self, data: bytes, now: bool) -> bool:  # noqa: ARG002  there is room
        self._send_bytes(data)
        return True

    def _send_bytes(self, data: Any) -> None:
        data = bytes(data)
        try:
            self.channel.within(0.0).put(presence(), packed(data))
        except CallWaitExpired:
            self.channel.put(presence(), packed(data, least=0))

    def size(self) -> int:
        return int(self.channel.size())
