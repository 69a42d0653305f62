"""The members of a channel in one view, and their tree: seat i is the child of seat (i - 1) // fan-out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...coordinator.messages import Seat, View
from ...errors import InternalError
from ..messages import Message


class Send(NamedTuple):
    """Instruction: give this message to the path to that member."""

    member: str
    message: Message


class Roster(NamedTuple):
    """Who sits where."""

    epoch: int
    seats: tuple[Seat, ...]
    fan_out: int
    lost: tuple[str, ...] = ()
    """Members that failed since the view before."""

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(seat.member for seat in self.seats)

    def parent(self, member: str) -> str | None:
        """None for the root, and for who is not in the view."""
        place = self._place(member)
        return self.seats[(place - 1) // self.fan_out].member if place > 0 else None

    def children(self, member: str) -> tuple[str, ...]:
        place = self._place(member)
        if place < 0:
            return ()
        first = place * self.fan_out + 1
        return tuple(seat.member for seat in self.seats[first : first + self.fan_out])

    def neighbours(self, member: str) -> tuple[str, ...]:
        """Children, and the parent last."""
        parent = self.parent(member)
        return self.children(member) + ((parent,) if parent is not None else ())

    def _place(self, member: str) -> int:
        return next((index for index, seat in enumerate(self.seats) if seat.member == member), -1)


NOBODY = Roster(0, (), 2)


def advance(roster: Roster, view: View) -> Roster | None:
    """The roster after `view`; None when it is not newer. Raises InternalError for a view of another past."""
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
