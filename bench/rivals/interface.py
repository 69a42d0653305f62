"""The interface of all rivals for the runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from harness.gang import Gang, Join
from harness.work import Task


class Rival(Protocol):
    """Started once for each number of members. Collectives are measured one after the other."""

    def start(self, members: int, folder: Path) -> None:
        """Start. `folder` is empty and may be filled."""

    def measure(self, task: Task) -> list[float]:
        """Seconds of each round after the warm-up. Every answer is checked. Raises AssertionError for a wrong one."""

    def stop(self) -> None:
        """Stop all started processes."""


class GangRival:
    """A rival whose members are processes of the runner: `serve` starts their shared part, `join` is the member's
    part."""

    join: Join
    preload: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._gang: Gang | None = None

    def start(self, members: int, folder: Path) -> None:
        setup = self.serve(members, folder)
        self._gang = Gang(type(self).join, setup, members, [type(self).__module__, *self.preload])

    def measure(self, task: Task) -> list[float]:
        assert self._gang is not None
        return self._gang.measure(task)

    def stop(self) -> None:
        if self._gang is not None:
            self._gang.close()

    def serve(self, members: int, folder: Path) -> Any:
        """Start the shared part. Returns the data for `join`."""
        raise NotImplementedError
