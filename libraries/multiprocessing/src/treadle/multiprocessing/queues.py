"""Queues whose items live at a keeper: no process holds a lock while it waits, so a killed process blocks no other.

`put` returns when the item is at the keeper. While the keeper has many bytes for the queue, items are files.
"""

from __future__ import annotations

import contextlib
import multiprocessing.queues
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, Full
from typing import Any

from treadle.primitives.errors import TreadleError
from treadle.primitives.objects import CallWaitExpired, Handle

from .by_value import dumps, loads
from .consistency import publish, refresh
from .places import new, packed, presence, unpacked
from .state import QueueItems
from .synchronize import waited

_Standard = multiprocessing.queues.Queue  # `install` replaces the name
_WATCH_SECONDS = 1.0
"""After which the thread of a watch looks whether it is still needed."""


class End:
    """One end of a queue, with those methods of a connection that the queue needs."""

    def __init__(self, channel: Handle[QueueItems]) -> None:
        self._channel = channel
        self._watch: Watch | None = None
        self.closed = False

    def send_bytes(self, data: bytes) -> None:
        self._check()
        try:
            self._channel.within(0.0).put(presence(), packed(data))
        except CallWaitExpired:
            self._channel.put(presence(), packed(data, least=0))

    def recv_bytes(self, timeout: float | None = None) -> bytes:
        """Wait for a pickled item. Raises TimeoutError."""
        self._check()
        channel = self._channel if timeout is None else self._channel.within(max(0.0, timeout))
        item = channel.get(presence())
        if self._watch is not None:
            self._watch.look()
        return unpacked(item)

    def recv(self) -> Any:
        return loads(self.recv_bytes())

    def fileno(self) -> int:
        """Return a descriptor for `connection.wait`. It is readable while there are items."""
        self._check()
        if self._watch is None:
            self._watch = Watch(self, self._channel)
        return self._watch.descriptor

    def poll(self, timeout: float | None = 0.0) -> bool:
        self._check()
        return self._channel.has_items() if timeout == 0.0 else waited(self._channel, "ready", timeout)

    def close(self) -> None:
        """Refuse later calls. The items stay for other processes."""
        self.closed = True
        if self._watch is not None:
            self._watch.end()

    def _check(self) -> None:
        if self.closed:
            raise OSError("handle is closed")


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


class SimpleQueue(multiprocessing.queues.SimpleQueue):  # type: ignore[type-arg]
    """A queue without a bound, whose `put` returns when the item is at the keeper."""

    def __init__(self, *, ctx: Any = None) -> None:
        self.__setstate__(new(QueueItems))

    def __getstate__(self) -> Any:
        return self._channel

    def __setstate__(self, state: Any) -> None:
        self._channel: Handle[QueueItems] = state
        self._reader, self._writer = End(state), End(state)
        self._poll = self._reader.poll

    def get(self) -> Any:
        return loads(self._reader.recv_bytes())

    def put(self, obj: Any) -> None:
        self._writer.send_bytes(dumps(obj))


class Queue(_Standard):  # type: ignore[type-arg]
    """A queue."""

    _joinable = False
    _closed: bool
    _on_queue_feeder_error: Callable[[Exception, Any], None]

    def __init__(self, maxsize: int = 0, *, ctx: Any = None) -> None:
        self.__setstate__((max(0, maxsize), new(QueueItems, max(0, maxsize), self._joinable)))

    def __getstate__(self) -> Any:
        return self._maxsize, self._channel

    def __setstate__(self, state: Any) -> None:
        self._maxsize, self._channel = state
        self._reader = self._writer = End(self._channel)
        self._counted = bool(self._maxsize) or self._joinable
        self._reset()  # type: ignore[attr-defined]

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        self._check()
        if self._counted and not waited(self._channel, "reserve", timeout if block else 0.0, presence()):
            raise Full
        try:
            data = dumps(obj)
        except Exception as error:  # noqa: BLE001  reported as the standard library does
            if self._counted:
                self._channel.give_back(presence())
            self._on_queue_feeder_error(error, obj)
        else:
            self._writer.send_bytes(data)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._check()
        limit = timeout if block else 0.0
        try:
            data = self._reader.recv_bytes(limit)
        except TimeoutError:
            raise Empty from None
        return loads(data)

    def _check(self) -> None:
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")

    def qsize(self) -> int:
        return int(self._channel.size())

    def full(self) -> bool:
        return bool(self._maxsize) and self.qsize() >= self._maxsize


class JoinableQueue(Queue, multiprocessing.queues.JoinableQueue):  # type: ignore[type-arg]
    """A queue whose items are reported as done. When a process dies with an item, `join` raises HolderLost."""

    _joinable = True

    def task_done(self) -> None:
        publish()
        self._channel.done(presence())

    def join(self) -> None:
        self._channel.join()
        refresh()
