"""The members of a channel in one view, and their seats in the tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...coordinator import tree
from ...coordinator.messages import Seat, View
from ...errors import InternalError
from ..messages import Message


class Send(NamedTuple):
    """An instruction: send this message over the path to that member."""

    member: str
    message: Message


class Roster(NamedTuple):
    """A view of a channel as its members use it."""

    epoch: int
    seats: tuple[Seat, ...]
    fan_out: int
    lost: tuple[str, ...] = ()
    """Members lost since the view before."""

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(seat.member for seat in self.seats)

    def parent(self, member: str) -> str | None:
        """Return the parent; None for the root, and for a member that is not in the view."""
        place = self._place(member)
        above = tree.parent(place, self.fan_out) if place >= 0 else None
        return None if above is None else self.seats[above].member

    def children(self, member: str) -> tuple[str, ...]:
        place = self._place(member)
        below = tree.children(place, self.fan_out, len(self.seats)) if place >= 0 else ()
        return tuple(self.seats[seat].member for seat in below)

    def neighbours(self, member: str) -> tuple[str, ...]:
        """Return the children, then the parent."""
        parent = self.parent(member)
        return self.children(member) + ((parent,) if parent is not None else ())

    def _place(self, member: str) -> int:
        return next((index for index, seat in enumerate(self.seats) if seat.member == member), -1)


NOBODY = Roster(0, (), 2)


def advance(roster: Roster, view: View) -> Roster | None:
    """Return the roster after `view`; None when it is not newer. Raises InternalError when `view` builds on another
    epoch.
    """
    if view.epoch <= roster.epoch:
        return None
    if view.since not in (0, roster.epoch):
        raise InternalError(f"{view.channel}: a view since epoch {view.since} on one of epoch {roster.epoch}")
    seats = list(roster.seats) if view.since else []
    for change in sorted(view.changes, key=lambda change: change.seat):
        if change.occupant is None:
            del seats[change.seat :]
        elif change.seat < len(seats):
            seats[change.seat] = change.occupant
        else:
            seats.append(change.occupant)
    return Roster(view.epoch, tuple(seats), view.fan_out, view.lost)


def to_all(members: Iterable[str], message: Message) -> list[Send]:
    return [Send(member, message) for member in members]
