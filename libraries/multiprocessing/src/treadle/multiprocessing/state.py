"""Shared classes behind locks, queues and pools: their state lives at a keeper, and outlives each process.

A **holder** is a process, known by the session of its presence (`places.presence`). When the process dies the keeper
reports the end of that session, about a second later, to `_session_ended`.
"""

from __future__ import annotations

from collections import deque
from signal import SIGKILL
from threading import BrokenBarrierError
from typing import Any

from treadle.primitives.objects import current, read, removes, shared, then, when
from treadle.primitives.objects.large_values import Packed

from .errors import HolderLost, ReleasedTooOften

CHANNEL_BYTES = 4 << 20
"""Bytes of the items of a queue, or of the tasks of a pool, above which a sender waits."""


def size_of(item: Packed | None) -> int:
    return len(item or "")


@shared
class Permits:
    """The permits of a lock or semaphore. With `tracked`, a dead process loses its permits: when no other one is free,
    one call of `acquire` raises HolderLost, and then they are free.
    """

    def __init__(self, free: int, maximum: int, tracked: bool) -> None:
        self.free, self.maximum, self.tracked = free, maximum, tracked
        self.holders: list[int] = []
        self.lost = 0

    @when(lambda self, _: self.free or self.lost)
    def acquire(self, holder: int) -> None:
        if not self.free:
            self.lost, self.free = 0, self.lost
            text = "a process ended while it held the lock, and the data that the lock protects may be half changed"
            raise HolderLost(text, "Restore it before the next acquire, or end the program.")
        self.free -= 1
        if self.tracked:
            self.holders.append(holder)

    def try_acquire(self, holder: int) -> bool:
        if not (self.free or self.lost):
            return False
        self.acquire(holder)
        return True

    @removes
    def release(self, holder: int) -> None:
        """Give a permit back; any process may. Raises ValueError above the maximum."""
        if self.free >= self.maximum:
            raise ReleasedTooOften("semaphore or lock released too many times")
        self.free += 1
        if self.holders:
            self.holders.remove(holder if holder in self.holders else self.holders[0])
        else:
            self.lost = max(0, self.lost - 1)

    @read
    def value(self) -> int:
        return self.free

    def _session_ended(self, session: int) -> None:
        self.lost += self.holders.count(session)
        self.holders = [holder for holder in self.holders if holder != session]


@shared
class RemoteProcess:
    """A process at a worker. It begins once, although its call may run again, and then gets signals."""

    def __init__(self) -> None:
        self.begun = False
        self.signals: list[int] = []

    def begin(self) -> int:
        """Returns 0, or the signal that the process has died of."""
        begun, self.begun = self.begun, True
        return SIGKILL if begun else (self.signals or [0])[0]

    def send(self, signal: int) -> None:
        self.signals.append(signal)

    @when(lambda self: self.signals)
    def take(self) -> int:
        return self.signals.pop(0)


@shared
class Waiters:
    """Threads that wait for a notification, in order."""

    def __init__(self) -> None:
        self.notified: dict[int, bool] = {}

    def enlist(self) -> None:
        """Begin to wait: a notification from now on counts. The caller still owns the lock."""
        self.notified[current().session] = False

    def wait(self) -> Any:
        return then("_wake", current().session)

    @when(lambda self, session: self.notified.get(session, True))
    def _wake(self, session: int) -> None:
        self.notified.pop(session, None)

    def notify(self, count: int) -> None:
        for session in [session for session, notified in self.notified.items() if not notified][:count]:
            self.notified[session] = True

    @read
    def count(self) -> int:
        return len(self.notified)

    def _withdrawn(self, session: int) -> None:
        if self.notified.pop(session, False):
            self.notify(1)

    _session_ended = _withdrawn


@shared
class Rendezvous:
    """The state of a barrier. The last party runs the action of the barrier before it calls `open`."""

    def __init__(self, parties: int) -> None:
        self.parties, self.generation, self.resets = parties, 0, 0
        self.arrived: dict[int, int] = {}
        """The index of each waiting session."""
        self.full = self.broken = False

    @when(lambda self: self.broken or not self.full)
    def arrive(self) -> Any:
        """Arrive; returns the index and whether all parties have arrived. The others wait for them."""
        if self.broken:
            raise BrokenBarrierError
        index = self.arrived[current().session] = len(self.arrived)
        self.full = index + 1 == self.parties
        return (index, True) if self.full else then("_pass", index, self.generation, self.resets)

    @when(lambda self, _, generation, resets: self.broken or (self.generation, self.resets) != (generation, resets))
    def _pass(self, index: int, generation: int, resets: int) -> tuple[int, bool]:
        if self.generation == generation or self.resets != resets:
            raise BrokenBarrierError
        return index, False

    def open(self) -> None:
        if self.broken:
            raise BrokenBarrierError
        self.generation, self.arrived, self.full = self.generation + 1, {}, False

    def reset(self) -> None:
        """Make the barrier usable and empty: waiting parties raise BrokenBarrierError."""
        self.resets, self.arrived, self.full, self.broken = self.resets + 1, {}, False, False

    def abort(self) -> None:
        """Break the barrier: waiting and later parties raise BrokenBarrierError."""
        self.broken = True

    @read
    def status(self) -> tuple[int, bool]:
        """Return the number of waiting parties, and whether the barrier is broken."""
        return 0 if self.full or self.broken else len(self.arrived), self.broken

    def _withdrawn(self, session: int) -> None:
        if self.arrived.pop(session, None) is not None:
            self.abort()

    _session_ended = _withdrawn


@shared
class QueueItems:
    """The items of a queue. `bound`: places; 0: no bound. With `joinable` the calls of `done` are counted."""

    def __init__(self, bound: int = 0, joinable: bool = False) -> None:
        self.bound, self.free, self.joinable = bound, bound, joinable
        self.items: deque[Packed] = deque()
        self.bytes = 0
        self.reserved: dict[int, int] = {}
        """Of each process: places of items that it has yet to send."""
        self.unfinished = self.lost = 0
        self.taken: dict[int, int] = {}
        """Of each process: items that it got, and did not report as done."""

    @when(lambda self, _: self.free > 0 or not self.bound)
    def reserve(self, holder: int) -> None:
        self.free -= 1
        self.unfinished += 1
        self.reserved[holder] = self.reserved.get(holder, 0) + 1

    @removes
    def give_back(self, holder: int) -> None:
        """Give a place back: its item could not be pickled."""
        self.free += 1
        self._count(self.reserved, holder)

    @when(lambda self, _, item: isinstance(item, str) or self.bytes < CHANNEL_BYTES)
    def put(self, holder: int, item: Packed) -> None:
        """Add an item, for which the process has a place if the queue has a bound."""
        self.items.append(item)
        self.bytes += size_of(item)
        self._count(self.reserved, holder)

    @removes
    @when(lambda self, _: self.items)
    def get(self, holder: int) -> Packed:
        item = self.items.popleft()
        self.bytes -= size_of(item)
        self.free += 1
        if self.joinable:
            self.taken[holder] = self.taken.get(holder, 0) + 1
        return item

    @when(lambda self, *_: self.items)
    def ready(self, holder: int = 0) -> None:
        """Wait for an item, and leave it."""

    @read
    def has_items(self, holder: int = 0) -> bool:  # noqa: ARG002  as of pipes
        return bool(self.items)

    @read
    def size(self) -> int:
        """Return the number of places that are taken, or of the items without a bound."""
        return self.bound - self.free if self.bound else len(self.items)

    @removes
    def done(self, holder: int) -> None:
        """Report an item as done. Raises ValueError without an item."""
        if not self.unfinished:
            raise ValueError("task_done() called too many times")
        self.unfinished -= 1
        self._count(self.taken, holder if holder in self.taken else next(iter(self.taken), holder))

    @when(lambda self: self.unfinished <= self.lost)
    def join(self) -> None:
        """Wait until all items are done. Raises HolderLost when a process ended with an item."""
        if self.unfinished:
            self.unfinished = self.lost = 0
            text = "a process ended before it called task_done() for an item that it got"
            raise HolderLost(text, "Put the item again, or end the program.")

    @staticmethod
    def _count(numbers: dict[int, int], holder: int) -> None:
        if numbers.get(holder, 0) > 1:
            numbers[holder] -= 1
        else:
            numbers.pop(holder, None)

    def _session_ended(self, session: int) -> None:
        unsent = self.reserved.pop(session, 0)
        self.free += unsent
        self.unfinished -= unsent
        self.lost += self.taken.pop(session, 0)


Task = tuple[Any, Packed, int]
"""Job and index; the pickle; how often it was given to a worker."""


@shared
class PoolTasks:
    """Tasks and results of a pool. A worker has one task at a time: it takes the next one when it has sent a result."""

    def __init__(self, retries: int, most: int) -> None:
        self.retries, self.most = retries, most
        self.tasks: deque[Task | None] = deque()
        """None lets one worker end."""
        self.results: deque[tuple[Any, Packed | None, str]] = deque()
        """Job and index, and the pickle of the result; None: the worker of this name has ended."""
        self.running: dict[int, tuple[Task, str]] = {}
        self.bytes = self.result_bytes = 0
        self.closed = False

    @when(lambda self, _, __: self.closed or (len(self.tasks) < self.most and self.bytes < CHANNEL_BYTES))
    def add(self, key: Any, body: Packed | None) -> None:
        """Add a task. A closed pool ignores it."""
        if not self.closed:
            self.tasks.append(None if body is None else (key, body, 0))
            self.bytes += size_of(body)

    @removes
    @when(lambda self, _: self.tasks)
    def take(self, worker: str) -> Packed | None:
        """Wait for a task, and take it."""
        task = self.tasks.popleft()
        if task is None:
            return None
        self.running[current().session] = task, worker
        self.bytes -= size_of(task[1])
        return task[1]

    @when(lambda self, _, __: self.closed or self.result_bytes < CHANNEL_BYTES)
    def finish(self, key: Any, body: Packed | None) -> None:
        self.result_bytes += size_of(body)
        self.running.pop(current().session, None)
        self.results.append((key, body, ""))

    @removes
    @when(lambda self: self.results)
    def collect(self) -> list[tuple[Any, Packed | None, str]]:
        """Wait for results, and take up to 100 of them."""
        found = [self.results.popleft() for _ in range(min(100, len(self.results)))]
        self.result_bytes -= sum(size_of(body) for _, body, _ in found)
        return found

    @removes
    def close(self) -> None:
        """Drop the tasks, and ignore later ones."""
        self.closed = True
        self.tasks.clear()

    def _session_ended(self, session: int) -> None:
        if session not in self.running:
            return
        (key, body, runs), worker = self.running.pop(session)
        if runs < self.retries:
            self.tasks.appendleft((key, body, runs + 1))
            self.bytes += size_of(body)
        else:
            self.results.append((key, None, worker))
