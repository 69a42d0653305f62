"""The offsets of a partition that belong to a run, as few numbers.

`start` is the first of them. `runs` are alternating lengths: offsets that belong, offsets that do not, and so on,
ending with offsets that belong. Offsets 7, 8, 11 are `(7, (2, 2, 1))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

Offsets = tuple[int, tuple[int, ...]]
"""(start, runs)."""


def runs_of(offsets: Iterable[int]) -> Offsets:
    """Encode ascending offsets, at least one. Raises ValueError for others."""
    given = iter(offsets)
    start = last = next(given, -1)
    if start < 0:
        raise ValueError("offsets are missing or below 0")
    runs = [1]
    for offset in given:
        if offset <= last:
            raise ValueError(f"offset {offset} follows {last}")
        if offset == last + 1:
            runs[-1] += 1
        else:
            runs += (offset - last - 1, 1)
        last = offset
    return start, tuple(runs)


def stretches(start: int, runs: Sequence[int]) -> Iterator[range]:
    """The offsets that belong, as ranges without a gap. Raises ValueError for invalid runs."""
    if len(runs) % 2 == 0 or min(runs) < 1 or start < 0:
        raise ValueError("runs take turns, begin and end with offsets that belong, and none is empty")
    for index, length in enumerate(runs):
        if index % 2 == 0:
            yield range(start, start + length)
        start += length


def count(runs: Sequence[int]) -> int:
    """Return the number of offsets that belong."""
    return sum(runs[::2])


def piece(start: int, runs: Sequence[int], first: int, stop: int) -> Offsets:
    """Select, among the offsets that belong, numbers `first` to `stop - 1`; at least one."""
    kept: list[range] = []
    for stretch in stretches(start, runs):
        if part := stretch[max(first, 0) : max(stop, 0)]:
            kept.append(part)
        first, stop = first - len(stretch), stop - len(stretch)
    if not kept:
        raise ValueError("the piece is empty")
    lengths = [len(kept[0])]
    for before, after in pairwise(kept):
        lengths += (after.start - before.stop, len(after))
    return kept[0].start, tuple(lengths)
