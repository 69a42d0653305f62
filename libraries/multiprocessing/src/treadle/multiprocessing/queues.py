"""Queues. On one machine items are in a socket; elsewhere, and when places or done items are counted, at a keeper."""

from __future__ import annotations

import multiprocessing.queues
import sys
import threading
from collections.abc import Callable
from queue import Empty, Full
from typing import Any

from .by_value import dumps, loads
from .consistency import publish, refresh
from .keeper_connections import QueueEnd
from .places import new, presence, spans_machines
from .socket_ends import SocketEnd
from .state import QueueItems
from .synchronize import waited

_Standard = multiprocessing.queues.Queue  # `install` replaces the name


def _end(bound: int = 0, joinable: bool = False) -> QueueEnd | SocketEnd:
    if bound or joinable or spans_machines():
        return QueueEnd(new(QueueItems, bound, joinable), presence)
    return SocketEnd.new()


class SimpleQueue(multiprocessing.queues.SimpleQueue):  # type: ignore[type-arg]
    """A queue without a bound. On one machine `put` waits while the socket is full."""

    def __init__(self, *, ctx: Any = None) -> None:
        self.__setstate__(_end())

    def __getstate__(self) -> Any:
        return self._reader

    def __setstate__(self, state: Any) -> None:
        self._reader = self._writer = state
        self._poll = self._reader.poll

    def get(self) -> Any:
        return loads(self._reader.take())

    def put(self, obj: Any) -> None:
        self._writer.send_bytes(dumps(obj))


class Queue(_Standard):  # type: ignore[type-arg]
    """A queue. When its socket is full, the thread of the standard library sends the later items."""

    _joinable = False
    _closed: bool
    _notempty: threading.Condition
    _thread: threading.Thread | None
    _on_queue_feeder_error: Callable[[Exception, Any], None]

    def __init__(self, maxsize: int = 0, *, ctx: Any = None) -> None:
        self.__setstate__((max(0, maxsize), _end(max(0, maxsize), self._joinable)))

    def __getstate__(self) -> Any:
        return self._maxsize, self._reader

    def __setstate__(self, state: Any) -> None:
        self._maxsize, self._reader = state
        self._writer = self._reader
        self._counted = bool(self._maxsize) or self._joinable
        self._ignore_epipe = False
        self._wlock = self._sem = threading.Semaphore(sys.maxsize)  # the thread needs neither
        self._reset()  # type: ignore[attr-defined]
        # The thread pickles its items, and must not keep the queue alive: it ends with the queue.
        self._send_bytes = lambda item, end=state[1]: end.send_counted(loads(item))

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        self._check()
        if self._counted and not waited(self._reader.channel, "reserve", timeout if block else 0.0, presence()):
            raise Full
        try:
            data = dumps(obj)
        except Exception as error:  # noqa: BLE001  reported as the standard library does
            if self._counted:
                self._reader.channel.give_back(presence())
            self._on_queue_feeder_error(error, obj)
        else:
            self._put(data)

    def _put(self, data: bytes) -> None:
        """Send a pickled item, or let the thread send it once it runs, so that items keep their order."""
        with self._notempty:
            if self._writer.offer(data, self._thread is None):
                return
        _Standard.put(self, data)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._check()
        limit = timeout if block else 0.0
        try:
            data = self._reader.take(limit)
        except TimeoutError:
            raise Empty from None
        return loads(data)

    def _check(self) -> None:
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")

    def qsize(self) -> int:
        return int(self._reader.size())

    def full(self) -> bool:
        return bool(self._maxsize) and self.qsize() >= self._maxsize


class JoinableQueue(Queue, multiprocessing.queues.JoinableQueue):  # type: ignore[type-arg]
    """A queue whose items are reported as done. When a process dies with an item, `join` raises HolderLost."""

    _joinable = True

    def task_done(self) -> None:
        publish()
        self._reader.channel.done(presence())

    def join(self) -> None:
        self._reader.channel.join()
        refresh()
