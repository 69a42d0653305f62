"""The task groups of a wide node: waiting and running groups, and the end of the node that follows from theirs. Pure.

A wide segment runs in groups of consecutive partitions, each by its own activity, so that several drivers share it. The
bounds follow from counts alone. Once all groups are closed, the node's own activity assembles their results
(docs/decisions/0021).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

AT_ONCE = 500
"""Maximum of running groups of a node."""


def count_of(partitions: int, size: int) -> int:
    """The number of groups for this many partitions."""
    return -(-partitions // size)


def bounds_of(group: int, partitions: int, size: int) -> range:
    """The partitions of a group. Group -1 has all partitions."""
    return range(partitions) if group < 0 else range(group * size, min((group + 1) * size, partitions))


def segment_of(block: str) -> str:
    """The concrete segment of a block: `lloyd-3/assign` for `lloyd-3/assign/0.1.ab`."""
    return block.rsplit("/", 1)[0]


def partition_of(block: str) -> int:
    """The partition of a block: 7 for `each/7.1.x`."""
    return int(block.rsplit("/", 1)[1].partition(".")[0])


class OpenTaskGroups:
    """The open groups of one node.

    A limit of concurrency counts the tasks of all groups, so each running group gets a share of it. The number of
    running groups is chosen so that rounds come out even.
    """

    def __init__(
        self, waiting: Iterable[int], seats: int, limit: int = 0, repair: tuple[str, ...] = (), size: int = 0
    ) -> None:
        """`seats`: groups that drivers can take at once. `limit`: tasks at once; 0: any number.

        `repair`: blocks of the node to recompute. `size`: partitions in a group.
        """
        self._waiting = deque(waiting)
        self._limit = limit
        self._seats = _even(len(self._waiting), min(self._bounded(seats), limit)) if limit else self._bounded(seats)
        self._running: dict[int, int] = {}
        """Group -> its seat."""
        self.repair, self._size = repair, size
        self.stopped = False
        self.lost: set[str] = set()

    @property
    def running(self) -> bool:
        return bool(self._running)

    def start(self) -> list[tuple[int, int]]:
        """The groups to start now, each with its share of the limit. None start after a stop or the loss of an
        input."""
        found = []
        while self._waiting and len(self._running) < self._seats and not (self.stopped or self.lost):
            group, seat = self._waiting.popleft(), min(set(range(self._seats)) - set(self._running.values()))
            self._running[group] = seat
            found.append((group, self._limit * (seat + 1) // self._seats - self._limit * seat // self._seats))
        return found

    def repair_of(self, group: int) -> tuple[str, ...]:
        """The blocks that the group must recompute."""
        return tuple(block for block in self.repair if partition_of(block) // self._size == group)

    def over(self, group: int, seats: int = 0) -> bool:
        """Note the end of a group. False: it was not running. `seats`: the drivers' present number; 0: as before."""
        if seats and not self._limit:
            self._seats = self._bounded(seats)
        return self._running.pop(group, None) is not None

    @staticmethod
    def _bounded(seats: int) -> int:
        return max(1, min(seats, AT_ONCE))


def _even(count: int, seats: int) -> int:
    """The number of seats, at most `seats`, for which all rounds are about equally large."""
    rounds = count_of(count, seats)
    return count_of(count, rounds) if rounds else 1
