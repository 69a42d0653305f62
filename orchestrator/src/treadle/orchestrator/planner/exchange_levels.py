"""Whether a shuffle takes one level or two: a pure function of how many partitions meet, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from msgspec import Struct

WIDE = 50_000
"""Parts (sources x targets) above which a shuffle takes two levels, unless they are large; measured, see
docs/decisions/0014: a part costs about 50 microseconds beside its bytes."""
LARGE_PART = 32 * 2**10
"""Bytes of a part from which moving it once more costs as much as the part itself."""
TOO_WIDE = 1_000_000
"""Parts above which there are always two levels: the driver holds 200 to 350 bytes for each."""


class Levels(Struct, frozen=True):
    """The shape of a shuffle of two levels. It follows from counts of the plan alone."""

    groups: int
    """Bundles that each source leaves."""
    runs: tuple[int, ...]
    """For each input: consecutive sources whose bundles are merged at once."""
    tasks: tuple[int, ...]
    """For each input: partitions of the second level."""


def levels_of(sources: Sequence[int], targets: int, estimate: int) -> tuple[Levels | None, str]:
    """Two levels, or None for one, of a shuffle of inputs with so many partitions and bytes; and why, if it is wide.

    0 partitions: known at run time only. With about sqrt(targets) groups and sqrt(sources) runs of sources a task of
    the second level has the geometric mean of a source's and a target's data.
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
