"""The number of partitions that share a task. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

TASK_SECONDS = 0.2
"""A task holds about this much work once durations are known: small enough to balance, large enough to amortise."""
TASK_LEAST_SECONDS = 0.002
"""Shorter partitions share a task: the cost of a message would be most of their time."""
TASK_PARTITIONS = 500
"""Maximum of partitions in one task."""
FIRST = 16
"""Maximum of partitions in one task while durations are unknown."""


class TaskSizes:
    """The sizes of a segment's tasks, from the durations of its partitions so far."""

    def __init__(
        self,
        slots: int,
        *,
        pace: float = 0.0,
        time_limit: float = 0.0,
        timeout: float = 0.0,
        room: float = math.inf,
        weights: Mapping[int, int] | None = None,
        first: int = FIRST,
    ) -> None:
        """`pace`: seconds that a partition took in the previous iteration; 0: not known. `time_limit`: seconds that a
        task may take; `timeout`: seconds that a partition may take; 0: no limit. `room`: the maximum sum of `weights`
        (by partition) in a task. `first`: maximum of partitions in a task while durations are unknown."""
        self._slots = max(1, slots)
        self._first = first
        self._pace, self._time_limit, self._timeout = pace, time_limit, timeout
        self._weights = dict(weights or {})
        self._done, self._seconds = 0, 0.0
        self.room = room

    def weight(self, partition: int) -> int:
        """The partition's share of `room`."""
        return self._weights.get(partition, 0)

    def weigh(self, weights: Mapping[int, int]) -> None:
        """The weights of further partitions."""
        self._weights |= weights

    def took(self, seconds: float) -> None:
        """A partition is done after `seconds`."""
        self._done += 1
        self._seconds += seconds

    def most(self, waiting: int) -> int:
        """The number of partitions for the next task, while `waiting` partitions wait.

        It is a share of them (guided self-scheduling, Polychronopoulos and Kuck 1987). The share is larger if times are
        known.
        """
        share = math.ceil(waiting / ((2 if self._pace else 4) * self._slots))
        average = self._seconds / self._done if self._done else self._pace
        if average:
            share = min(max(share, int(TASK_LEAST_SECONDS / average)), int(TASK_SECONDS / average))
        else:
            share = min(share, 1 if self._time_limit else self._first)
        if self._time_limit and self._timeout:
            share = min(share, int(self._time_limit / self._timeout))
        return max(1, min(share, TASK_PARTITIONS))
