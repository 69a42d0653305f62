"""The seats of a channel's members: 0 .. n-1 without gaps, as an F-ary heap (parent of i: (i - 1) // F).

Heap numbering keeps the tree as shallow as possible: the last seats fill the holes, so every level but the deepest
stays full. Changes are collected and applied together, which moves the fewest members. Remaining members keep seats
below the new end, new members fill holes, and only members beyond the new end move.
"""

from __future__ import annotations

from collections.abc import Iterator


def parent(seat: int, fan_out: int) -> int | None:
    """Return the parent's seat; None for the root."""
    return (seat - 1) // fan_out if seat else None


def children(seat: int, fan_out: int, size: int) -> range:
    """Return the seats of the children, in a tree of `size` seats."""
    first = seat * fan_out + 1
    return range(min(first, size), min(first + fan_out, size))


def beside(seat: int, fan_out: int, size: int) -> set[int]:
    """Return this seat, its parent and its children, as far as a tree of `size` seats has them."""
    above = parent(seat, fan_out)
    found = {seat, *children(seat, fan_out, size)} | ({above} if above is not None else set())
    return {one for one in found if one < size}


def depth(size: int, fan_out: int) -> int:
    """Return the number of steps from the root to the deepest of `size` seats."""
    steps, seat = 0, size - 1
    while seat > 0:
        seat, steps = (seat - 1) // fan_out, steps + 1
    return steps


class Tree:
    """Maps names to seats. Changes by `add` and `remove` become visible at `settle`."""

    def __init__(self) -> None:
        self._seats: list[str | None] = []
        self._seat_of: dict[str, int] = {}
        self._waiting: dict[str, tuple[int, int]] = {}
        self._changed: set[int] = set()

    def __len__(self) -> int:
        """Number of members, including those without a seat."""
        return len(self._seat_of) + len(self._waiting)

    def __iter__(self) -> Iterator[str]:
        """Names in the order of their seats; valid only after `settle`."""
        return iter(self._seat_of)

    def add(self, name: str, epoch: int = 0, seat: int = -1) -> None:
        """Add a member that had this seat in the view of this epoch. It gets the seat back unless another claim is
        better.
        """
        self._waiting[name] = (-epoch, seat)

    def remove(self, name: str) -> None:
        """Leave a hole in place of a member, or forget one without a seat."""
        if self._waiting.pop(name, None) is None:
            seat = self._seat_of.pop(name)
            self._seats[seat] = None
            self._changed.add(seat)

    def touch(self, name: str) -> None:
        """Mark the seat as changed: its occupant has new data under the same name."""
        if name in self._seat_of:
            self._changed.add(self._seat_of[name])

    def settle(self) -> list[int]:
        """Give every member a seat. Returns the changed seats, ascending, including those past the new end."""
        if not (self._waiting or self._changed):
            return []
        size, before = len(self), len(self._seats)
        movers = [name for name in self._seats[size:] if name is not None]
        self._changed.update(range(size, before))
        self._seats[size:] = [None] * max(0, size - before)
        self._seat_claimants(size)
        rest = iter([*self._waiting, *movers])
        for seat, name in enumerate(self._seats):
            if name is None:
                self._sit(next(rest), seat)
        self._waiting.clear()
        self._seat_of = {name: seat for seat, name in enumerate(self._seats) if name is not None}
        changed, self._changed = sorted(self._changed), set()
        return changed

    def _seat_claimants(self, size: int) -> None:
        """Grant claims to seats, in the order of their views, the latest first."""
        for name, (_, seat) in sorted(self._waiting.items(), key=lambda item: item[1]):
            if 0 <= seat < size and self._seats[seat] is None:
                self._sit(name, seat)
                del self._waiting[name]

    def _sit(self, name: str, seat: int) -> None:
        self._seats[seat] = name
        self._changed.add(seat)
