"""Locks, semaphores, conditions, events and barriers whose state lives at a keeper.

They are the classes of the standard library, over a `SemLock` that calls the keeper. Conditions, events and barriers
have a shared object of their own: fewer calls, and a waiting process that dies does not block the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import synchronize
from multiprocessing.synchronize import SEM_VALUE_MAX  # type: ignore[attr-defined]
from threading import BrokenBarrierError
from typing import Any

from treadle.primitives.objects import CallWaitExpired, Flag, Handle

from .consistency import publish, refresh
from .places import new, presence
from .state import Permits, Rendezvous, Waiters

RECURSIVE_MUTEX, SEMAPHORE = 0, 1


def waited(handle: Handle[Any], method: str, timeout: float | None, *arguments: Any) -> bool:
    """Call a method that waits; returns whether it ended in time."""
    limited = handle if timeout is None else handle.within(max(0.0, timeout))
    try:
        getattr(limited, method)(*arguments)
    except CallWaitExpired:
        return False
    refresh()
    return True


class SemLock:
    """The interface of `_multiprocessing.SemLock`, on which the classes of the standard library are built."""

    def __init__(self, kind: int, value: int, maximum: int) -> None:
        tracked = maximum < SEM_VALUE_MAX
        self.__setstate__((kind, maximum, new(Permits, value, maximum, tracked)))

    def __getstate__(self) -> Any:
        return self.kind, self.maxvalue, self._handle

    def __setstate__(self, state: Any) -> None:
        self.kind, self.maxvalue, self._handle = state
        self._depth, self._owner = 0, 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take a permit; returns whether there was one in time. Raises HolderLost."""
        if self.kind == RECURSIVE_MUTEX and self._is_mine():
            self._depth += 1
            return True
        if block:
            taken = waited(self._handle, "acquire", timeout, presence())
        elif taken := self._handle.try_acquire(presence()):
            refresh()
        if not taken:
            return False
        self._depth, self._owner = self._depth + 1, threading.get_ident()
        return True

    def release(self) -> None:
        if self.kind == RECURSIVE_MUTEX:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._depth > 1:
                self._depth -= 1
                return
        publish()
        self._depth -= 1  # before the call: the next owner may be a thread of this process
        self._handle.release(presence())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_mine(self) -> bool:
        return self._depth > 0 and self._owner == threading.get_ident()

    def _count(self) -> int:
        return self._depth

    def _get_value(self) -> int:
        return int(self._handle.value())

    def _is_zero(self) -> bool:
        return self._get_value() == 0


class _OnKeeper:
    """Replaces the making and the pickling of the classes of the standard library."""

    _semlock: SemLock
    _make_methods: Callable[[], None]

    def _make(self, kind: int, value: int, maximum: int) -> None:
        self.__setstate__(SemLock(kind, value, maximum))

    def __getstate__(self) -> Any:
        return self._semlock

    def __setstate__(self, state: Any) -> None:
        self._semlock = state
        self._make_methods()


class Semaphore(_OnKeeper, synchronize.Semaphore):
    """A semaphore. Its permits have no holder: a process may release a permit that another process acquired."""

    def __init__(self, value: int = 1, *, ctx: Any = None) -> None:
        self._make(SEMAPHORE, value, SEM_VALUE_MAX)


class BoundedSemaphore(_OnKeeper, synchronize.BoundedSemaphore):
    """A semaphore whose permits are lost with the process that holds them."""

    def __init__(self, value: int = 1, *, ctx: Any = None) -> None:
        self._make(SEMAPHORE, value, value)


class Lock(_OnKeeper, synchronize.Lock):
    """A lock. When its holder dies, the next `acquire` raises HolderLost."""

    def __init__(self, *, ctx: Any = None) -> None:
        self._make(SEMAPHORE, 1, 1)


class RLock(_OnKeeper, synchronize.RLock):
    """A lock that its thread may acquire again. When its holder dies, the next `acquire` raises HolderLost."""

    def __init__(self, *, ctx: Any = None) -> None:
        self._make(RECURSIVE_MUTEX, 1, 1)


class _Number:
    """A number that looks like a semaphore: debuggers and tests read the parts of a condition."""

    def __init__(self, read: Callable[[], int]) -> None:
        self.get_value = self._get_value = read
        self._semlock = self


class Condition(synchronize.Condition):
    """A condition. A process that dies while it waits does not count."""

    def __init__(self, lock: Any = None, *, ctx: Any = None) -> None:
        self.__setstate__((lock or RLock(), new(Waiters)))

    def __getstate__(self) -> Any:
        return self._lock, self._waiters

    def __setstate__(self, state: Any) -> None:
        self._lock, self._waiters = state
        self._sleeping_count = _Number(self._waiters.count)
        self._woken_count = self._wait_semaphore = _Number(lambda: 0)
        self._make_methods()  # type: ignore[attr-defined]

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, and acquire the lock; returns whether there was one in time."""
        semlock = self._lock._semlock
        assert semlock._is_mine(), "must acquire() condition before using wait()"
        self._waiters.enlist()
        depth = semlock._count()
        for _ in range(depth):
            self._lock.release()
        try:
            return waited(self._waiters, "wait", timeout)
        finally:
            for _ in range(depth):
                self._lock.acquire()

    def notify(self, n: int = 1) -> None:
        assert self._lock._semlock._is_mine(), "lock is not owned"
        self._waiters.notify(n)


class Event(synchronize.Event):
    """An event."""

    def __init__(self, *, ctx: Any = None) -> None:
        self._flag = new(Flag)

    def is_set(self) -> bool:
        found = bool(self._flag.is_set())
        refresh()
        return found

    def set(self) -> None:
        publish()
        self._flag.set()

    def clear(self) -> None:
        self._flag.clear()

    def wait(self, timeout: float | None = None) -> bool:
        return waited(self._flag, "wait", timeout)


class Barrier(threading.Barrier):
    """A barrier. A party that dies while it waits breaks it."""

    def __init__(self, parties: int, action: Any = None, timeout: float | None = None, *, ctx: Any = None) -> None:
        self.__setstate__((parties, action, timeout, new(Rendezvous, parties)))

    def __getstate__(self) -> Any:
        return self._parties, self._action, self._timeout, self._state

    def __setstate__(self, state: Any) -> None:
        self._parties, self._action, self._timeout, self._state = state

    def wait(self, timeout: float | None = None) -> int:
        timeout = self._timeout if timeout is None else timeout
        limited = self._state if timeout is None else self._state.within(max(0.0, timeout))
        publish()
        try:
            index, last = limited.arrive()
        except CallWaitExpired:
            raise BrokenBarrierError from None
        refresh()
        if last:
            self._open()
        return int(index)

    def _open(self) -> None:
        try:
            if self._action is not None:
                self._action()
                publish()
        except BaseException:
            self._state.abort()
            raise
        self._state.open()

    def reset(self) -> None:
        self._state.reset()

    def abort(self) -> None:
        self._state.abort()

    @property
    def n_waiting(self) -> int:
        return int(self._state.status()[0])

    @property
    def broken(self) -> bool:
        return bool(self._state.status()[1])
