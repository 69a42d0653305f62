"""Unauthenticated connections (strangers): how many a listener keeps, for how long, and which is closed first.

The oldest is closed first, so that a member always gets in: it authenticates within milliseconds, and silent
connections in any number do not block it. This module does no I/O and reads no clock; callers pass times of
`time.monotonic()`.
"""

from __future__ import annotations

import contextlib
import resource
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
GRACE = 0.05
"""Seconds that every connection has, even when many others arrive. Callers are accepted in order of arrival, so that a
caller waits at most this time for each `most` strangers before it.
"""
MOST = 1024
"""Default limit of strangers of one listener, if there are enough descriptors."""
_LEAST = 8
_DESCRIPTORS = 65_536


def allowance(wanted: int = MOST, parts: int = 8) -> int:
    """Return `wanted`, or fewer when it exceeds 1/`parts` of this process's descriptors, so that the rest is free for
    its work.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_LEAST, min(wanted, soft // parts))


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process's descriptors to the hard limit (65,536 at most).

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
        """`seconds`: time from arrival until a connection must have authenticated."""
        self.most, self._seconds, self._grace = most, seconds, GRACE if grace is None else grace
        self._since: OrderedDict[T, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def add(self, one: T, now: float) -> None:
        """A connection arrived; does nothing for a known one."""
        self._since.setdefault(one, now)

    def remove(self, one: T) -> None:
        """The connection authenticated or ended."""
        self._since.pop(one, None)

    def past_grace(self, now: float) -> T | None:
        """Remove and return the oldest stranger if its grace time is over; otherwise None."""
        return self.oldest() if self._since and self.next_grace(now) <= 0 else None

    def next_grace(self, now: float) -> float:
        """Return seconds until the grace time of the oldest stranger is over; without strangers, the whole
        grace time.
        """
        return next(iter(self._since.values()), now) + self._grace - now

    def oldest(self) -> T | None:
        """Remove and return the oldest stranger of any age: for when no descriptor is left."""
        return self._since.popitem(last=False)[0] if self._since else None

    def expire(self, now: float) -> list[T]:
        """Remove and return the strangers whose time is over."""
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
        """The time at which the oldest stranger expires; infinite without strangers."""
        return next(iter(self._since.values()), float("inf")) + self._seconds
