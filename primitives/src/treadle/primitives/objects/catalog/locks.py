"""Objects that bound how many callers do something at a time.

The owner is the session of the caller: a thread of a process. When a session ends, because its process died or was
silent for 30 s, all that it holds is released. `acquire` returns a **fencing token**, which rises from owner to owner.
A system that the lock protects can refuse a caller whose token is lower than one that it has seen: no lock service can
keep a stalled owner from going on.
"""

from __future__ import annotations

from typing import Any

from ..definitions import current, read, shared, then, when


@shared
class Lock:
    """A lock with an owner."""

    def __init__(self) -> None:
        self.owner: int | None = None
        self.token = 0

    @when(lambda self: self.owner is None)
    def acquire(self) -> int:
        """Wait for the lock; returns the fencing token."""
        return self._give()

    def try_acquire(self) -> int | None:
        """Take the lock if it is free; returns the fencing token, or None."""
        return self._give() if self.owner is None else None

    def release(self) -> None:
        """Release the lock. Raises RuntimeError for a caller that does not own it."""
        if self.owner != current().session:
            raise RuntimeError("this thread does not own the lock: its session may have ended")
        self.owner = None

    @read
    def locked(self) -> bool:
        """Return whether the lock has an owner."""
        return self.owner is not None

    def _give(self) -> int:
        self.owner, self.token = current().session, current().number
        return self.token

    def _session_ended(self, session: int) -> None:
        if self.owner == session:
            self.owner = None


@shared
class Condition(Lock):
    """A lock whose owner can wait for a notification. Often a class with a guard is simpler."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, bool] = {}
        """Sessions that wait, in order, and whether they are notified."""

    def wait(self) -> Any:
        """Release the lock, wait for a notification, and acquire the lock; returns the new fencing token."""
        self.release()
        self.waiting[current().session] = False
        return then("_resume", current().session)

    @when(lambda self, session: self.owner is None and self.waiting.get(session, True))
    def _resume(self, session: int) -> int:
        self.waiting.pop(session, None)
        return self._give()

    def notify(self, count: int = 1) -> None:
        """Wake callers of `wait`, the first ones first. Raises RuntimeError for a caller that does not own the lock."""
        if self.owner != current().session:
            raise RuntimeError("this thread does not own the lock: its session may have ended")
        for session in [session for session, notified in self.waiting.items() if not notified][:count]:
            self.waiting[session] = True

    def _withdrawn(self, session: int) -> None:
        self.waiting.pop(session, None)


@shared
class ReadWriteLock:
    """Many readers, or one writer. New readers wait while a writer waits."""

    def __init__(self) -> None:
        self.readers: dict[int, int] = {}
        """The number of times that each session reads."""
        self.writer: int | None = None
        self.writers_waiting: list[int] = []

    @when(lambda self: self.writer is None and not self.writers_waiting)
    def acquire_read(self) -> int:
        """Wait until no other caller writes; returns the fencing token."""
        session = current().session
        self.readers[session] = self.readers.get(session, 0) + 1
        return current().number

    def acquire_write(self) -> Any:
        """Wait until no other caller reads or writes; returns the fencing token."""
        self.writers_waiting.append(current().session)
        return then("_write", current().session)

    @when(lambda self, session: self.writer is None and not self.readers and session == self.writers_waiting[0])
    def _write(self, _: int) -> int:
        self.writer = self.writers_waiting.pop(0)
        return current().number

    def release(self) -> None:
        """Release the lock once. Raises RuntimeError for a caller that does not hold it."""
        session = current().session
        if self.writer == session:
            self.writer = None
        elif session in self.readers:
            self.readers[session] -= 1
            if not self.readers[session]:
                del self.readers[session]
        else:
            raise RuntimeError("this thread does not hold the lock: its session may have ended")

    def _session_ended(self, session: int) -> None:
        self.readers.pop(session, None)
        self.writer = None if self.writer == session else self.writer

    def _withdrawn(self, session: int) -> None:
        self.writers_waiting = [one for one in self.writers_waiting if one != session]


@shared
class Semaphore:
    """A number of permits."""

    def __init__(self, permits: int) -> None:
        self.free = permits
        self.held: dict[int, int] = {}
        """The permits of each session."""

    @when(lambda self, permits=1: self.free >= permits)
    def acquire(self, permits: int = 1) -> int:
        """Wait for permits; returns the fencing token."""
        self.free -= permits
        session = current().session
        self.held[session] = self.held.get(session, 0) + permits
        return current().number

    def try_acquire(self, permits: int = 1) -> bool:
        """Take permits if enough are free; returns whether they were."""
        if self.free < permits:
            return False
        self.acquire(permits)
        return True

    def release(self, permits: int = 1) -> None:
        """Give permits back. Raises RuntimeError for a caller that does not hold as many."""
        session = current().session
        left = self.held.get(session, 0) - permits
        if left < 0:
            raise RuntimeError("this thread does not hold these permits: its session may have ended")
        self.held[session] = left
        if not left:
            del self.held[session]
        self.free += permits

    @read
    def available(self) -> int:
        """Return the number of free permits."""
        return self.free

    def _session_ended(self, session: int) -> None:
        self.free += self.held.pop(session, 0)
