"""Deadlines of equal length. A renewed key goes to the end, so the first key expires next. All operations but
`begin_all` take constant time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Maps keys to the time when they expire, `seconds` after they began. The `now` of successive calls must never
    fall.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: OrderedDict[Key, float] = OrderedDict()

    def begin(self, key: Key, now: float) -> None:
        """Start or restart the deadline of a key."""
        self._ends[key] = now + self._seconds
        self._ends.move_to_end(key)

    def begin_all(self, now: float) -> None:
        """Restart all running deadlines."""
        for key in self._ends:
            self._ends[key] = now + self._seconds

    def cancel(self, key: Key) -> None:
        """Remove the deadline of a key, if it has one."""
        self._ends.pop(key, None)

    def wakes_at(self) -> float | None:
        """Return the time at which the next deadline expires; None without one."""
        return next(iter(self._ends.values()), None)

    def over(self, now: float) -> Iterator[Key]:
        """Yield and remove the keys that have expired by `now`."""
        while (end := self.wakes_at()) is not None and end <= now:
            yield self._ends.popitem(last=False)[0]
