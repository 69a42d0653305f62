"""Second attempts at slow partitions: the backup tasks of MapReduce. Pure.

Near the end of a segment one slow attempt delays the whole job (Dean and Ghemawat, OSDI 2004, section 3.6). Once half
of the partitions are done, an attempt that has taken three times their median is a straggler. A slot without other work
runs the straggler's partition too; the first delivery counts. Blocks are named after attempts, so they never collide.
"""

from __future__ import annotations

from heapq import heappop, heappush, heappushpop

LEAST_PARTITIONS = 10
"""Fewer durations make a poor median."""
TIMES_MEDIAN = 3.0
LEAST_SECONDS = 0.5
"""A younger attempt does not count as a straggler, since a second attempt would not be faster."""


class Backups:
    """Durations of partitions, the start time in every slot, and the partitions that run twice."""

    def __init__(self) -> None:
        self._shorter: list[float] = []
        """Heap of the shorter half of the durations of finished partitions, negative."""
        self._longer: list[float] = []
        """Heap of the others. Its first is the median."""
        self._under_way: dict[str, tuple[int, float]] = {}
        """slot -> (partition, start time)."""
        self.twice: set[int] = set()
        """Partitions that were given a second attempt."""

    def begins(self, slot: str, partition: int, now: float) -> None:
        self._under_way[slot] = (partition, now)

    def finishes(self, slot: str, now: float) -> None:
        """The slot's partition is done."""
        _, since = self._under_way.pop(slot)
        heappush(self._shorter, -heappushpop(self._longer, now - since))
        if len(self._shorter) > len(self._longer):
            heappush(self._longer, -heappop(self._shorter))

    def leaves(self, slot: str) -> None:
        """The slot's partition ended without an outcome."""
        self._under_way.pop(slot, None)

    def straggler(self, total: int, now: float) -> int | None:
        """The partition that has run for longest, if it is a straggler and runs once; otherwise None.

        It counts as doubled from now on. `total`: partitions of the segment.
        """
        due = self._overdue_since(total)
        if due is None or due[0] > now:
            return None
        self.twice.add(due[1])
        return due[1]

    def wakes_at(self, total: int) -> float | None:
        """When the next partition becomes a straggler, by the durations known now."""
        due = self._overdue_since(total)
        return due[0] if due else None

    def _overdue_since(self, total: int) -> tuple[float, int] | None:
        if total < LEAST_PARTITIONS or 2 * (len(self._shorter) + len(self._longer)) < total:
            return None
        patience = max(LEAST_SECONDS, TIMES_MEDIAN * self._longer[0])
        single = [(since + patience, p) for p, since in self._under_way.values() if p not in self.twice]
        return min(single, default=None)
