"""What the runner asks of everyone it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workloads.settings import Sizes, Workload


class Base:
    """A rival has a method for each workload it is measured on: `words(variant, target)`, and so on.

    The methods are what is timed. They return the answer, or write it below `target`, an empty folder; `checks` has
    what each answer must be.
    """

    def __init__(self, sizes: Sizes, folder: Path) -> None:
        """`folder` is empty, on disk, and may be filled."""
        self.sizes, self.folder = sizes, folder

    def start(self) -> None:
        """Begin all that a user begins once."""

    def prepare(self, workload: Workload) -> None:
        """Load what the workload takes as loaded. Not timed."""

    def after(self) -> None:
        """After each round was checked, not timed: give back what it left."""

    def spent(self) -> dict[str, float]:
        """Where the seconds of the last round went, if the rival knows."""
        return {}

    def stop(self) -> None:
        """End what was begun."""

    def shuffle(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self.shuffled(self.sizes.shuffled)

    def shuffle_large(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self.shuffled(self.sizes.shuffled_large)

    def shuffled(self, count: int) -> Any:
        """Count and sum of each task's integers."""
        raise NotImplementedError
