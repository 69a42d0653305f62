"""The socket loop: a waiting user thread runs it, and the keeper thread runs it while user functions compute.

One lock guards all state; no thread holds it while waiting. One thread at a time leads: it waits for the sockets and
handles their events (leader and followers, Schmidt 1995). The keeper watches only while no thread leads. A user thread
that waits switches the keeper's watch off, so that events reach it without a change of threads.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ...errors import TreadleError
from ...small_threads import start_thread

T = TypeVar("T")
_NAP = 0.005
"""Seconds after which the keeper checks whether a thread leads."""
_SLEEP = 0.05
"""The same while a user's thread leads. A thread that stops leading does not wake the keeper: with many members on a
host that would be the largest cost of a barrier. Messages that a computing function has to pass on may wait this long.
"""
_NEVER = float("inf")
_BRIEF = 200e-6
"""Seconds of a wait that is too short for sleeping."""
_TAKEN = 50e-6
"""A yield that takes longer than these seconds means that another thread used the processor: it is awake already."""


class Late(TreadleError):
    """The awaited event did not arrive before the deadline."""


class SocketLoop:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watch, self._end = select.epoll(), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watch.register(self._epoll.fileno(), 0)
        self._watch.register(self._end, select.EPOLLIN)
        self._handlers: dict[int, Callable[[int], None]] = {}
        self.register(self._wake, lambda _: self._woken())
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._due = _NEVER
        """Time of the next timer."""
        self._numbers = itertools.count()
        self._leader: int = 0
        self._watching = False
        """The keeper receives socket events."""
        self._wanted = 0
        self._turns = 0
        self._looks = True
        """Poll for a while before sleeping."""
        self._error: BaseException | None = None
        self._over = False
        self._keeper = start_thread(self._keep, name="treadle-channels")

    # -- for handlers, with the lock held ----------

    def register(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Call before the descriptor is closed."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` after this delay."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), action))
        self._due = self._timers[0][0]

    def fail(self, error: BaseException) -> None:
        """From now on, no thread waits: each raises this error instead."""
        self._error = self._error or error

    # -- for any thread ----------

    def do(self, action: Callable[[], T]) -> T:
        """Run `action` under the lock, and let waiting threads poll again."""
        with self.lock:
            due = self._due
            result = action()
            if self._leader and self._leader != threading.get_ident():
                self._changed.notify_all()
                os.eventfd_write(self._wake, 1)
            elif self._watching and self._due < due:
                os.eventfd_write(self._wake, 1)
            return result

    def wait(self, poll: Callable[[], T | None], deadline: float) -> T:
        """Return the result of `poll`, called under the lock until it is not None. Raises Late, and the errors of
        `poll`.
        """
        with self.lock:
            while (result := poll()) is None:
                self.wait_once(deadline)
            return result

    def wait_once(self, deadline: float) -> None:
        """Wait, with the lock held, until an event may have happened. Raises Late."""
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        if now >= deadline:
            raise Late("too late")
        if not self._leader:
            if self._watching:
                self._watch_from_now(False)
            self._turn(min(deadline, self._due) - now)
        else:
            self._take_over(deadline - now)

    def _take_over(self, left: float) -> None:
        """Wait until an event happened or no thread leads."""
        self._wanted += 1
        os.eventfd_write(self._wake, 1)
        self._changed.wait(min(left, 1.0))
        self._wanted -= 1

    def _turn(self, timeout: float) -> None:
        """Lead once: wait for sockets and timers without the lock, then handle the events."""
        self._leader = threading.get_ident()
        self.lock.release()
        try:
            events = self._poll(timeout)
        finally:
            self.lock.acquire()
            self._leader = 0
        self._turns += 1
        for fd, event in events:
            if (handler := self._handlers.get(fd)) is not None:
                handler(event)
        if self._due <= (now := time.monotonic()):
            self._run_timers(now)
        if self._wanted:
            self._changed.notify_all()

    def _poll(self, timeout: float) -> list[tuple[int, int]]:
        """Poll for a while instead of sleeping: waking an idle processor takes longer.

        A yield between two polls gives the processor to threads with work, such as the sender of the awaited message.
        After a yield that another thread used, later waits sleep at once, until a wait was short.
        """
        began = now = time.monotonic()
        look = min(_BRIEF, timeout) if self._looks else 0.0
        while now - began < look:
            if events := self._epoll.poll(0):
                return events
            before = now
            os.sched_yield()
            now = time.monotonic()
            if now - before > _TAKEN:
                self._looks = False
                break
        events = self._epoll.poll(max(0.0, timeout - (now - began)))
        self._looks = self._looks or (timeout > 0 and time.monotonic() - began < _BRIEF)
        return events

    def _woken(self) -> None:
        os.eventfd_read(self._wake)

    def _run_timers(self, now: float) -> None:
        while self._due <= now:
            _, _, action = heapq.heappop(self._timers)
            self._due = self._timers[0][0] if self._timers else _NEVER
            action()

    # -- the keeper ----------

    def _keep(self) -> None:
        """Watch when no thread has led for a while; lead when an event arrives."""
        turns = -1
        while not self._over:
            with self.lock:
                idle = not (self._leader or self._wanted)
                self._watch_from_now(idle and (self._watching or self._turns == turns))
                turns = self._turns
                pause = min(self._due - time.monotonic(), _SLEEP) if self._watching else _NAP if idle else _SLEEP
            self._watch.poll(max(0.0, pause))
            with self.lock:
                if self._watching:
                    self._lead_once()

    def _watch_from_now(self, watching: bool) -> None:
        """Switch the keeper's watch on or off, without waking it: that would be most of the cost of a short wait."""
        if self._watching != watching:
            self._watching = watching
            self._watch.modify(self._epoll.fileno(), select.EPOLLIN if watching else 0)

    def _lead_once(self) -> None:
        try:
            self._turn(0.0)
        except Exception as error:  # noqa: BLE001 - the next waiting thread raises it
            self._error = error
            self._over = True

    def close(self) -> None:
        """End the keeper thread; no handler runs afterwards."""
        self._over = True
        os.eventfd_write(self._end, 1)
        self._keeper.join()
        self._watch.close()
        self._epoll.close()
        os.close(self._wake)
        os.close(self._end)
