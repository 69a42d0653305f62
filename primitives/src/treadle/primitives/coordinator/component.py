"""The shared parts of the coordinator: timing, deadlines, limits, epochs and refusals."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from ..errors import TreadleError
from .messages import ToMember

Post = Callable[[str, ToMember], None]
"""Sends a message to a member, by name; does nothing while the member is not connected."""

GREATEST_EPOCH = 2**53
"""Highest epoch accepted from a member: epochs must be able to rise further, and stay exact as a float."""


class Timing(Struct, frozen=True):
    """Durations of the coordinator, in seconds."""

    lease: float = 10.0
    """A silent member is lost after this time."""
    grace: float = 1.0
    """A member whose connection ended without Bye has this time to reconnect, and again this time to name its channels.
    """
    settle: float = 2.0
    """A channel of an earlier coordinator waits this long for its members before its first view."""
    spacing: float = 20e-6
    """Minimum time between two views of a channel, for each of its members: about 50,000 messages a second."""
    dial: float = 0.05
    """Delay between `Dial` and dialling: both sides have received `Dial` by then."""
    broken: float = 30.0
    """How long a broken barrier is remembered, for parties that arrive late."""


class CoordinatorLimits(Struct, frozen=True):
    """Limits of one run, so that a faulty member is refused before it exhausts the memory."""

    connections: int = 20_000
    name: int = 1_000
    """Characters of a name or address."""
    channels: int = 1_000
    """Channels of one member."""
    barriers: int = 10_000
    parties: int = 100_000
    fan_out: int = 1_000
    blocks: int = 100_000
    """Blocks announced by one member."""
    located: int = 16
    """Members named in one answer: the latest to announce the block, which have served the fewest requests so far."""
    relayed: int = 64 * 1024
    """Bytes of a relayed message."""
    results: int = 10_000
    """Finished tasks that are remembered, so that a repeated result is accepted again."""
    ended: int = 10_000
    """Former members that are remembered, so that no member waits for them."""


class Statistics(Struct, frozen=True):
    """Counts of the coordinator's entries, by kind."""

    members: int = 0
    connections: int = 0
    channels: int = 0
    barriers: int = 0
    blocks: int = 0
    tasks: int = 0


class Refusal(TreadleError):
    """A request of a member is refused: the member receives the reason, and nothing has changed."""

    def __init__(self, subject: str, reason: str, *, ended: bool = False) -> None:
        super().__init__(f"{subject}: {reason}")
        self.subject, self.reason, self.ended = subject, reason, ended


def check(holds: bool, subject: str, reason: str) -> None:
    """Raise Refusal unless `holds`."""
    if not holds:
        raise Refusal(subject[:100], reason)


class Epochs:
    """One rising count for all views and tasks of a run; it never falls."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def next(self) -> int:
        self._last += 1
        return self._last

    def seen(self, epoch: int) -> None:
        """Continue above an epoch that an earlier coordinator gave."""
        self._last = max(self._last, epoch)


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Latest(OrderedDict[str, Value]):
    """The latest entries: when there are more than `limit`, the oldest is removed."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: str, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self._limit:
            self.popitem(last=False)


class Deadlines(Generic[Key]):
    """Maps keys to the time when they expire, `seconds` after they began. The `now` of successive calls must never
    fall.

    A renewed key goes to the end, so the first key expires next. All operations but `begin_all` take constant time.
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
