"""The paths of one member to members it cannot dial: requests to the coordinator, and attempts from its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..coordinator.messages import Dial, Reach
from ..errors import TreadleError
from ..small_threads import start_thread
from .establish import open_path
from .machine import SCHEDULE, Schedule
from .port_reuse import Endpoint
from .reachability import Paths

if TYPE_CHECKING:
    from ..wire import Connection, Identity

_ANSWER = 5.0
"""Seconds after which an unanswered request to the coordinator is repeated."""


class Reacher:
    """Turns `Dial` messages into connections, with a thread for each attempt. For use from any thread.

    Call `want` for each message to an unreachable member, which is relayed meanwhile. Pass each `Dial` of the
    coordinator to `dial`. The attempt's thread calls `opened`, which then owns the connection.
    """

    def __init__(
        self,
        me: str,
        run: str,
        key: bytes,
        *,
        ask: Callable[[Reach], None],
        opened: Callable[[str, Connection], None],
        tls: Identity | None = None,
        schedule: Schedule = SCHEDULE,
    ) -> None:
        """`tls`, `schedule`: as for `open_path`. `ask` sends to the coordinator."""
        self._me, self._run, self._key = me, run, key
        self._ask, self._opened = ask, opened
        self._tls, self._schedule = tls, schedule
        self._paths = Paths()
        self._under_way: set[str] = set()
        self._settled: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = False

    def want(self, member: str) -> bool:
        """Ask for a path, unless a request is pending, or the pair failed or opened a path lately. Returns whether it
        asked.

        Fast enough to call for every message.
        """
        now = time.monotonic()
        with self._lock:
            may = not self._closed and self._may_begin(member, now) and self._paths.may_try(member, now)
            may = may and now >= self._asked.get(member, now)
            if may:
                self._asked[member] = now + _ANSWER
        if may:
            self._ask(Reach(member))
        return may

    def dial(self, dial: Dial, source: Endpoint) -> None:
        """Start an attempt; `source` is the local address of the connection that delivered the message.

        When both sides asked, both receive two messages; only the first counts, on either side.
        """
        with self._lock:
            if self._closed or not self._may_begin(dial.member, time.monotonic()):
                return
            self._under_way.add(dial.member)
        name = f"treadle-path-{dial.member}"
        try:
            start_thread(self._open, dial, source, name=name)
        except RuntimeError:  # too many threads
            self._end(dial.member, opened=False)

    def close(self) -> None:
        """Open no more paths. A running attempt ends by itself, and its connection is closed."""
        with self._lock:
            self._closed = True

    def _may_begin(self, member: str, now: float) -> bool:
        return member not in self._under_way and now >= self._settled.get(member, now)

    def _open(self, dial: Dial, source: Endpoint) -> None:
        schedule = self._schedule
        deadline = time.monotonic() + dial.delay + schedule.total + schedule.challenge
        try:
            connection = open_path(
                dial,
                self._me,
                source,
                self._run,
                self._key,
                deadline,
                tls=self._tls,
                schedule=schedule,
            )
        except TreadleError:
            self._end(dial.member, opened=False)  # messages are relayed
        else:
            if self._end(dial.member, opened=True):
                self._opened(dial.member, connection)
            else:
                connection.close()

    def _end(self, member: str, *, opened: bool) -> bool:
        """Record the end of an attempt; returns whether the path is still wanted. A second `Dial` is ignored for
        `total` seconds.
        """
        now = time.monotonic()
        with self._lock:
            self._under_way.discard(member)
            if opened:
                self._paths.opened(member)
                self._settled[member] = now + self._schedule.total
            else:
                self._paths.failed(member, now)
            return not self._closed
