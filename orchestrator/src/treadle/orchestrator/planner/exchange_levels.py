"""The choice of one or two levels for a shuffle, with its reason. A pure function of the numbers of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from msgspec import Struct

WIDE = 50_000
"""Parts (sources x targets) above which a shuffle takes two levels, unless the parts are large. Measured in
docs/decisions/0014: a part costs about 50 microseconds besides its bytes."""
LARGE_PART = 32 * 2**10
"""Bytes of a part from which a second transfer costs as much as the part itself."""
TOO_WIDE = 1_000_000
"""Parts above which a shuffle always takes two levels, since the driver holds 200 to 350 bytes for each."""


class Levels(Struct, frozen=True):
    """The shape of a shuffle with two levels. It depends only on counts of the plan."""

    groups: int
    """Bundles of each source."""
    runs: tuple[int, ...]
    """For each input: the number of consecutive sources whose bundles are merged at once."""
    tasks: tuple[int, ...]
    """For each input: partitions of the second level."""


def levels_of(sources: Sequence[int], targets: int, estimate: int) -> tuple[Levels | None, str]:
    """The levels of a shuffle (None: one level), with the reason if the shuffle is wide.

    `sources`: partitions of each input; 0: known at run time only. With about sqrt(targets) groups and sqrt(sources)
    runs of sources, a task of the second level has the geometric mean of a source's and a target's data.
    """
    total = sum(sources)
    parts = total * targets
    if not all(sources) or total < 2 or parts <= WIDE:
        return None, ""
    if estimate > parts * LARGE_PART and parts <= TOO_WIDE:
        return None, f"one level: its {parts:,} parts of about {estimate // parts:,} bytes are worth a read each"
    groups = isqrt(targets)
    runs = tuple(-(-count // isqrt(count)) for count in sources)
    counts = [-(-count // run) for count, run in zip(sources, runs, strict=True)]
    reason = (
        f"two levels: {total:,} x {targets:,} = {parts:,} parts are more than {WIDE:,}; "
        f"in {groups:,} groups of targets they are {total * groups:,} + {sum(counts) * targets:,}"
    )
    return Levels(groups, runs, tuple(groups * count for count in counts)), reason
