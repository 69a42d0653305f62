"""Whether a shuffle takes one level or two: a pure function of how many partitions meet, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from msgspec import Struct

WIDE = 1_000_000
"""Parts (sources x targets) above which a shuffle takes two levels."""


class Levels(Struct, frozen=True):
    """The shape of a shuffle of two levels: its sizes depend on these counts only, so they are the plan's to fix."""

    groups: int
    """Bundles that each source leaves."""
    runs: tuple[int, ...]
    """For each input: consecutive sources whose bundles are merged at once."""
    tasks: tuple[int, ...]
    """For each input: partitions of the second level."""
    reason: str


def levels_of(sources: Sequence[int], targets: int) -> Levels | None:
    """Two levels for a shuffle of inputs with so many partitions; None: one level. 0: known at run time only.

    With about sqrt(targets) groups and sqrt(sources) runs of sources a task of the second level has the geometric
    mean of a source's and a target's data, and no block has more than sqrt parts.
    """
    total = sum(sources)
    if not (all(sources) and targets) or total < 2 or total * targets <= WIDE:
        return None
    groups = isqrt(targets)
    runs = tuple(-(-count // isqrt(count)) for count in sources)
    tasks = tuple(groups * -(-count // run) for count, run in zip(sources, runs, strict=True))
    second = sum(tasks) // groups * targets
    reason = (
        f"two levels: {total:,} x {targets:,} = {total * targets:,} parts are more than {WIDE:,}; "
        f"with {groups:,} groups of targets they are {total * groups:,} + {second:,}"
    )
    return Levels(groups, runs, tasks, reason)
