"""Chooses the function size for an attempt. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.primitives.errors import UsageError

from ..program import Task


class Sizes:
    """A task with declared memory gets the smallest size that holds it. Other tasks start with the smallest size and
    get the next one after running out of memory."""

    def __init__(self, sizes: Sequence[int], reserve: int) -> None:
        """Both in bytes; `reserve`: see `Limits.reserve`."""
        self._sizes, self._reserve = sorted(sizes), reserve
        self._grown: dict[tuple[str, str, int], int] = {}

    @property
    def memory_limit(self) -> int:
        """Bytes the largest attempt may allocate."""
        return max(0, self._sizes[-1] - self._reserve)

    def of(self, task: Task) -> int:
        """Bytes of the function for this attempt. Raises UsageError when no size is large enough."""
        if not task.memory:
            return max(self._grown.get(key, self._sizes[0]) for key in _keys(task))
        needed = task.memory + self._reserve
        fitting = [size for size in self._sizes if size >= needed]
        if not fitting:
            raise UsageError(
                f"task {task.id} wants {task.memory} bytes of memory; the largest function gives {self.memory_limit}",
                "Lower `memory`, deploy a larger size, or run the stage on another executor.",
            )
        return fitting[0]

    def ran_out(self, task: Task, partition: int) -> None:
        """Record that an attempt at the partition ran out of memory (-1: any of the task's partitions)."""
        now = self.of(task)
        larger = next((size for size in self._sizes if size > now), now)
        for run, segment, index in _keys(task):
            if partition in (-1, index):
                self._grown[run, segment, index] = larger


def _keys(task: Task) -> list[tuple[str, str, int]]:
    return [(task.job.run, task.program.segment, one.index) for one in task.partitions]
