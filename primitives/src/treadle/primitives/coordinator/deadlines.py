"""Things that all last equally long: a renewal puts one last, so the first is the next to end. Constant time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Keys, and when each of them began to last `seconds`. The time given never falls from one call to the next."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: OrderedDict[Key, float] = OrderedDict()

    def begin(self, key: Key, now: float) -> None:
        """It begins, or begins anew."""
        self._ends[key] = now + self._seconds
        self._ends.move_to_end(key)

    def begin_all(self, now: float) -> None:
        """All that last begin anew."""
        for key in self._ends:
            self._ends[key] = now + self._seconds

    def cancel(self, key: Key) -> None:
        """It need not last."""
        self._ends.pop(key, None)

    def wakes_at(self) -> float | None:
        """When the next one ends."""
        return next(iter(self._ends.values()), None)

    def over(self, now: float) -> Iterator[Key]:
        """Those that ended by now, each once."""
        while (end := self.wakes_at()) is not None and end <= now:
            yield self._ends.popitem(last=False)[0]
