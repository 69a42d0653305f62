"""Connections whose messages are at a keeper: ends of pipes between machines, and queues.

No process holds a lock while it waits, so a killed process blocks no other.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from multiprocessing import connection
from typing import Any

from treadle.primitives.errors import TreadleError
from treadle.primitives.objects import CallWaitExpired, Handle

from .places import packed, presence, unpacked
from .state import QueueItems
from .synchronize import waited

_WATCH_SECONDS = 1.0
"""After which the thread of a watch looks whether it is still needed."""


class KeeperConnection(connection._ConnectionBase):
    """A connection over an object with the methods `put`, `get`, `ready` and `has_items`."""

    _check_closed: Callable[[], None]
    _watch: Watch | None = None

    def __init__(self, channel: Handle[Any], readable: bool = True, writable: bool = True) -> None:
        super().__init__(0, readable, writable)
        self.channel = channel

    def _key(self) -> int:
        """The first argument of the methods."""
        raise NotImplementedError

    def fileno(self) -> int:
        """Return a descriptor for `connection.wait`. It is readable while there is something to receive."""
        self._check_closed()
        if self._watch is None:
            self._watch = Watch(self, self.channel, self._key())
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
        return QueueEnd, (self.channel,)

    def _key(self) -> int:
        return presence()

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
