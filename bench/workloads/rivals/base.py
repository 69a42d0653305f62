"""The interface of all rivals for the runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workloads.settings import Sizes, Workload


class Base:
    """A rival has a method for each of its workloads: `words(variant, target)`, and so on.

    The methods are timed. They return the answer, or write it below `target`, an empty folder. `checks` has the
    expected answers.
    """

    def __init__(self, sizes: Sizes, folder: Path) -> None:
        """`folder` is empty, on disk, and may be filled."""
        self.sizes, self.folder = sizes, folder

    def start(self) -> None:
        """Start everything that a user starts once."""

    def prepare(self, workload: Workload) -> None:
        """Load the data that the workload assumes loaded. Not timed."""

    def after(self) -> None:
        """Clean up after the check of each round. Not timed."""

    def spent(self) -> dict[str, float]:
        """The parts of the last round's seconds, if the rival knows them."""
        return {}

    def stop(self) -> None:
        """Stop everything that `start` started."""

    def shuffle(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self.shuffled(self.sizes.shuffled)

    def shuffle_large(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self.shuffled(self.sizes.shuffled_large)

    def shuffled(self, count: int) -> Any:
        """Count and sum of each task's integers."""
        raise NotImplementedError
