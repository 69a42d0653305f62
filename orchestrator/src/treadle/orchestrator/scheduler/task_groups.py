"""The task groups of a wide node: which wait, which run, and how the node ends because of them. Pure.

A wide segment is run in groups of consecutive partitions, each by an activity of its own, so that several drivers share
it. The bounds follow from counts alone. What the groups left is put together by the
node's own activity, once all of them are closed (docs/decisions/0021).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

AT_ONCE = 500
"""Most groups of a node under way at once."""


def count_of(partitions: int, size: int) -> int:
    """Groups that so many partitions make."""
    return -(-partitions // size)


def bounds_of(group: int, partitions: int, size: int) -> range:
    """The partitions of a group; those of one group (-1) are all."""
    return range(partitions) if group < 0 else range(group * size, min((group + 1) * size, partitions))


def segment_of(block: str) -> str:
    """The concrete segment that a block is of: `lloyd-3/assign` of `lloyd-3/assign/0.1.ab`."""
    return block.rsplit("/", 1)[0]


def partition_of(block: str) -> int:
    """The partition that a block is of: 7 of `each/7.1.x`."""
    return int(block.rsplit("/", 1)[1].partition(".")[0])


class Groups:
    """Those of one node that are not closed yet.

    A limit of concurrency counts the tasks of all groups, so each one that runs has its share of it; as many run at
    once as share it evenly to the end.
    """

    def __init__(
        self, waiting: Iterable[int], seats: int, limit: int = 0, repair: tuple[str, ...] = (), size: int = 0
    ) -> None:
        """`seats`: groups that drivers can take at once; `limit`: tasks at once, 0: any number.

        `repair`: blocks of the node to make again, `size`: partitions of a group.
        """
        self._waiting = deque(waiting)
        self._limit = limit
        self._seats = _even(len(self._waiting), min(self._bounded(seats), limit)) if limit else self._bounded(seats)
        self._running: dict[int, int] = {}
        """group -> its seat."""
        self.repair, self._size = repair, size
        self.stopped = False
        self.lost: set[str] = set()

    @property
    def running(self) -> bool:
        return bool(self._running)

    def start(self) -> list[tuple[int, int]]:
        """The groups to start now, each with its share of the limit; none once one was stopped or lost its input."""
        found = []
        while self._waiting and len(self._running) < self._seats and not (self.stopped or self.lost):
            group, seat = self._waiting.popleft(), min(set(range(self._seats)) - set(self._running.values()))
            self._running[group] = seat
            found.append((group, self._limit * (seat + 1) // self._seats - self._limit * seat // self._seats))
        return found

    def repair_of(self, group: int) -> tuple[str, ...]:
        """The blocks that are to be made again by the group."""
        return tuple(block for block in self.repair if partition_of(block) // self._size == group)

    def over(self, group: int, seats: int = 0) -> bool:
        """A group ended, for better or worse; False: it was not running. `seats` as drivers are now; 0: as before."""
        if seats and not self._limit:
            self._seats = self._bounded(seats)
        return self._running.pop(group, None) is not None

    @staticmethod
    def _bounded(seats: int) -> int:
        return max(1, min(seats, AT_ONCE))


def _even(count: int, seats: int) -> int:
    """At most `seats`, so that rounds of so many come out even."""
    rounds = count_of(count, seats)
    return count_of(count, rounds) if rounds else 1
