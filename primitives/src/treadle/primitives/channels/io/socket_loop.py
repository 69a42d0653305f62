"""Who reads the sockets: the user's thread while it waits, the keeper's while the user's function computes.

All state is guarded by one lock, which nobody holds while waiting. One thread at a time leads: it waits for the sockets
and handles what comes (leader and followers, Schmidt 1995). The keeper only watches while nobody leads, and is blinded
by a user's thread that has to wait, so that what it waits for arrives without passing from thread to thread.
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

T = TypeVar("T")
_NAP = 0.005
"""Seconds after which the keeper looks whether anybody leads."""
_SLEEP = 0.05
"""The same while a user's thread leads. It does not wake the keeper when it is done: with many members on a host that
would cost more than all else at a barrier, and what a function that computes has to pass on may wait so long."""
_NEVER = float("inf")
_BRIEF = 200e-6
"""Seconds of a wait that is not worth sleeping."""
_TAKEN = 50e-6
"""Seconds after which a processor that was yielded has been used by somebody: it is awake without our help."""


class Late(TreadleError):
    """What was waited for did not come before the deadline."""


class Loop:
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
        """When the next timer is."""
        self._numbers = itertools.count()
        self._leader: int = 0
        self._watching = False
        """Whether the keeper sees what comes."""
        self._wanted = 0
        self._turns = 0
        self._looks = True
        """Whether it is well to look for a while before sleeping."""
        self._error: BaseException | None = None
        self._over = False
        self._keeper = threading.Thread(target=self._keep, name="treadle-channels", daemon=True)
        self._keeper.start()

    # -- for handlers, with the lock held ----------

    def register(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Before the descriptor is closed."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it after so long."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), action))
        self._due = self._timers[0][0]

    # -- for any thread ----------

    def do(self, action: Callable[[], T]) -> T:
        """Do something with the lock held, and let those who wait look again."""
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
        """What `poll` says, called with the lock held, as soon as it is not None. Raises Late, and what `poll` does."""
        with self.lock:
            while (result := poll()) is None:
                self.wait_once(deadline)
            return result

    def wait_once(self, deadline: float) -> None:
        """With the lock held: until something may have happened. Raises Late."""
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
        """Wait until something happened or the lead is free."""
        self._wanted += 1
        os.eventfd_write(self._wake, 1)
        self._changed.wait(min(left, 1.0))
        self._wanted -= 1

    def _turn(self, timeout: float) -> None:
        """Lead once: wait for sockets and timers without the lock, then handle what came."""
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
        """Look for a while instead of sleeping: to wake an idle processor takes longer.

        Yielding in between leaves the processor to whoever has something to do, such as to send what is waited for. If
        somebody has, who waits sleeps at once from then on, until a wait was short.
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
        """Watch once nobody has led for a while; lead when something comes."""
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
        """To change what the keeper sees does not wake it: that would be most of the work of a short wait."""
        if self._watching != watching:
            self._watching = watching
            self._watch.modify(self._epoll.fileno(), select.EPOLLIN if watching else 0)

    def _lead_once(self) -> None:
        try:
            self._turn(0.0)
        except Exception as error:  # noqa: BLE001 - whoever waits next gets it
            self._error = error
            self._over = True

    def close(self) -> None:
        """End the keeper; handlers run no more."""
        self._over = True
        os.eventfd_write(self._end, 1)
        self._keeper.join()
        self._watch.close()
        self._epoll.close()
        os.close(self._wake)
        os.close(self._end)
