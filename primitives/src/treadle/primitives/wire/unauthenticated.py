"""Connections that have proved nothing yet: how many a listener keeps, for how long, and which one goes first.

The oldest goes first, so that a member always gets in: it proves itself within milliseconds, and no number of silent
connections is in its way. Nothing here does I/O or knows a clock; callers give moments of `time.monotonic()`.
"""

from __future__ import annotations

import contextlib
import resource
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
GRACE = 0.05
"""Seconds that a connection has in any case, however many others come. Callers are accepted in the order in which they
come, so that one of them waits for at most this time for each `most` strangers before it."""
MOST = 1024
"""Strangers of one listener, if there are descriptors for so many."""
_LEAST = 8
_DESCRIPTORS = 65_536


def allowance(wanted: int = MOST, parts: int = 8) -> int:
    """At most one of `parts` of the descriptors that this process may open, so that the rest is free for its work."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_LEAST, min(wanted, soft // parts))


def raise_descriptor_limit() -> None:
    """Let this process open as many descriptors as it is entitled to (65,536 at most).

    The usual soft limit, 1,024, is meant for programs that call select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Strangers(Generic[T]):
    """The strangers of one listener, oldest first."""

    def __init__(self, most: int, seconds: float, *, grace: float | None = None) -> None:
        """`seconds`: from its arrival until a connection must have proved itself."""
        self.most, self._seconds, self._grace = most, seconds, GRACE if grace is None else grace
        self._since: OrderedDict[T, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def add(self, one: T, now: float) -> None:
        """It has arrived. Known already: nothing changes."""
        self._since.setdefault(one, now)

    def remove(self, one: T) -> None:
        """It has proved itself, or is gone."""
        self._since.pop(one, None)

    def past_grace(self, now: float) -> T | None:
        """The oldest one, removed, if it has had its grace."""
        return self.oldest() if self._since and self.next_grace(now) <= 0 else None

    def next_grace(self, now: float) -> float:
        """Seconds until the oldest one has had its grace; without strangers, that of one that comes now."""
        return next(iter(self._since.values()), now) + self._grace - now

    def oldest(self) -> T | None:
        """The oldest one, removed, whatever its age: for when there is no descriptor left."""
        return self._since.popitem(last=False)[0] if self._since else None

    def expire(self, now: float) -> list[T]:
        """Those whose time is over; removed."""
        over = []
        for one, since in self._since.items():
            if since + self._seconds > now:
                break
            over.append(one)
        for one in over:
            del self._since[one]
        return over

    @property
    def due(self) -> float:
        """When the next one's time is over; infinite without strangers."""
        return next(iter(self._since.values()), float("inf")) + self._seconds
