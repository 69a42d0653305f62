"""The members of a channel in one view, and their seats in the tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...coordinator import tree
from ...coordinator.messages import Seat, View
from ..messages import Message


class Send(NamedTuple):
    """An instruction: send this message over the path to that member."""

    member: str
    message: Message


class Roster(NamedTuple):
    """A view of a channel as one member uses it."""

    epoch: int
    seats: Mapping[int, Seat]
    """The members by seat: all, or (`Join.near`) those next to this member and itself."""
    fan_out: int
    lost: tuple[str, ...] = ()
    """Members lost since the view before."""
    before: int = 0
    previous: int = 0
    told: tuple[int, ...] = ()
    """See `View`."""

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(seat.member for seat in self.seats.values())

    def seat(self, member: str) -> int:
        """Return the member's seat; -1 for a member that is not in the view."""
        return next((index for index, seat in self.seats.items() if seat.member == member), -1)

    def parent(self, member: str) -> str | None:
        """Return the parent; None for the root, and for a member that is not in the view."""
        place = self.seat(member)
        above = tree.parent(place, self.fan_out) if place >= 0 else None
        return None if above is None else self.seats[above].member

    def children(self, member: str) -> tuple[str, ...]:
        place = self.seat(member)
        below = range(place * self.fan_out + 1, (place + 1) * self.fan_out + 1) if place >= 0 else ()
        return tuple(self.seats[seat].member for seat in below if seat in self.seats)

    def neighbours(self, member: str) -> tuple[str, ...]:
        """Return the children, then the parent."""
        parent = self.parent(member)
        return self.children(member) + ((parent,) if parent is not None else ())


NOBODY = Roster(0, {}, 2)


def advance(roster: Roster, view: View) -> Roster | None:
    """Return the roster after `view`; None when it is not newer."""
    if view.epoch <= roster.epoch:
        return None
    seats = dict(roster.seats) if view.since else {}
    for change in sorted(view.changes, key=lambda change: change.seat):
        if change.occupant is None:
            seats = {seat: occupant for seat, occupant in seats.items() if seat < change.seat}
        else:
            seats[change.seat] = change.occupant
    return Roster(view.epoch, seats, view.fan_out, view.lost, view.before, view.previous, view.told)


def to_all(members: Iterable[str], message: Message) -> list[Send]:
    return [Send(member, message) for member in members]
