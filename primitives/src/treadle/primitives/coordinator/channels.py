"""Channels: their members, and the views that report changes of membership.

    state      meaning
    forming    fewer than `parties` members have joined: no view yet
    gathering  a Join names an epoch that this channel never had: members of an earlier coordinator's channel return.
               After `settle` seconds a view gives them their old seats, where possible
    open       each change makes a view due, at once or when the last view is `spacing * members` old. The view
               includes all changes until then

A member that has the previous view gets only the difference; other members get a whole view (`since` 0). A connected
member that has not yet reported its last view gets none.

In a channel of `near` members a view has the seats next to the member's own. After few changes, only the members next
to them get a view; they pass its epoch on along the tree. A member that has missed an epoch joins again.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from . import tree
from .component import GREATEST_EPOCH, CoordinatorLimits, Epochs, Post, Timing, check
from .messages import Join, Seat, SeatChange, View
from .tree import Tree

_FEW = 4
"""A view goes to the members next to the changes if the channel has more than so many times their number."""
_LOSSES = 10_000
"""Losses that a channel remembers, for members that missed a view."""


class _Place(Struct):
    """The coordinator's record of a member in a channel."""

    seat: Seat
    since: int
    """Epoch of the last view that the member has seen, from any coordinator: losses after it are reported to the
    member.
    """
    held: int | None = 0
    """Epoch of the view that the member has from this coordinator. 0: none; None: the member has yet to report it."""
    sent: int = 0
    """Epoch of the last view sent, whether or not it arrived."""


class _Channel:
    def __init__(self, join: Join) -> None:
        self.name, self.fan_out, self.parties, self.near = join.channel, join.fan_out, join.parties, join.near
        self.places: dict[str, _Place] = {}
        self.tree = Tree()
        self.epoch = 0
        self.settles_at: float | None = None
        self.next_view_at = 0.0
        self._seats: list[Seat] = []
        self._previous = 0
        self._told: tuple[int, ...] = ()
        """See `View`."""
        self._lost: list[str] = []
        self._losses: deque[tuple[int, str]] = deque(maxlen=_LOSSES)

    def due(self, now: float) -> float | None:
        """Return the time at which the pending changes are sent; None: not yet known."""
        if self.settles_at is not None:
            return self.settles_at
        if not self.epoch and len(self.places) < self.parties:
            return None
        return max(now, self.next_view_at)

    def remove(self, member: str, lost: bool) -> None:
        del self.places[member]
        self.tree.remove(member)
        if lost:
            self._lost.append(member)

    def renew(self, epochs: Epochs) -> list[tuple[str, View]]:
        """Return the next view of each member that needs one."""
        before, end, changes = self.epoch, len(self._seats), self._changes()
        beside = self._beside(changes) if self.near else set()
        if changes or self._lost or not self.epoch:
            self._previous, self.epoch = before, epochs.next()
            self._losses.extend((self.epoch, name) for name in self._lost)
            few = self.near and before > 0 and len(self.places) > _FEW * len(beside)
            moved = range(len(self._seats), end)  # former seats of members that moved
            self._told = (*sorted(beside), *moved) if few else ()
        lost, self._lost = tuple(self._lost), []
        difference = View(self.name, self.epoch, before, () if self.near else changes, self.fan_out, lost, before)
        wholes: dict[int, View] = {}
        views = []
        for seat, name in enumerate(self.tree):
            place = self.places[name]
            if place.held in (None, self.epoch):
                continue
            if place.held != before or seat in beside:
                views.append((name, self._near(seat, place.since) if self.near else self._whole(place.since, wholes)))
            elif not self._told:
                views.append((name, difference))
            place.held = place.sent = place.since = self.epoch
        return views

    def _beside(self, changes: tuple[SeatChange, ...]) -> set[int]:
        """The seats next to changed ones, and these themselves."""
        return {seat for change in changes for seat in tree.beside(change.seat, self.fan_out, len(self._seats))}

    def _changes(self) -> tuple[SeatChange, ...]:
        """Settle the tree, and return the changes of seats since the last view."""
        settled = self.tree.settle()
        size, before = len(self.tree), len(self._seats)
        if not settled:
            return ()
        names = list(self.tree)
        self._seats[size:] = []
        changes = []
        for seat in settled:
            if seat < size:
                occupant = self.places[names[seat]].seat
                self._seats[seat : seat + 1] = [occupant]
                changes.append(SeatChange(seat, occupant))
        if size < before:
            changes.append(SeatChange(size, None))
        return tuple(changes)

    def _whole(self, since: int, known: dict[int, View]) -> View:
        """Return the whole view, for a member that lacks the previous one. Most such members need the same view."""
        if since not in known:
            changes = tuple(SeatChange(seat, occupant) for seat, occupant in enumerate(self._seats))
            known[since] = View(self.name, self.epoch, 0, changes, self.fan_out, self._lost_after(since), since)
        return known[since]

    def _near(self, seat: int, since: int) -> View:
        """Return the part of the view that the member of this seat needs."""
        near = sorted(tree.beside(seat, self.fan_out, len(self._seats)))
        changes, lost = tuple(SeatChange(one, self._seats[one]) for one in near), self._lost_after(since)
        return View(self.name, self.epoch, 0, changes, self.fan_out, lost, since, self._previous, self._told)

    def _lost_after(self, epoch: int) -> tuple[str, ...]:
        return tuple(name for lost_in, name in self._losses if lost_in > epoch) if epoch else ()


class Channels:
    """All channels of a run."""

    def __init__(self, post: Post, epochs: Epochs, timing: Timing, limits: CoordinatorLimits) -> None:
        self._post, self._epochs, self._timing, self._limits = post, epochs, timing, limits
        self._channels: dict[str, _Channel] = {}
        self._of: dict[str, set[str]] = {}
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def join(self, member: Seat, join: Join, now: float) -> None:
        """Give a member a seat, or record the view it reports after a reconnect. Raises Refusal."""
        self._check(member.member, join)
        channel = self._channels.get(join.channel)
        returns = join.epoch > (channel.epoch if channel else 0)
        if channel is None:
            channel = self._channels[join.channel] = _Channel(join)
        self._epochs.seen(join.epoch)
        if returns:
            channel.settles_at = channel.settles_at or now + self._timing.settle
        place = channel.places.get(member.member)
        if place is None:
            self._enter(channel, member, join)
        else:
            self._return(channel, place, member, join)
        self._schedule(channel, now)

    def _check(self, member: str, join: Join) -> None:
        channel = self._channels.get(join.channel)
        limits, name = self._limits, join.channel
        check(len(name) <= limits.name and len(join.role) <= limits.name, name, "the name or the role is too long")
        check(0 < join.fan_out <= limits.fan_out, name, f"the fan-out must be 1 to {limits.fan_out}")
        check(0 < join.parties <= limits.parties, name, f"parties must be 1 to {limits.parties}")
        check(0 <= join.epoch < GREATEST_EPOCH, name, "no coordinator gave this epoch")
        check(channel is None or channel.fan_out == join.fan_out, name, "its fan-out is another")
        check(channel is None or channel.near == join.near, name, "its members know other seats")
        joined = self._of.get(member, ())
        check(name in joined or len(joined) < limits.channels, name, f"more than {limits.channels} channels")

    def _enter(self, channel: _Channel, member: Seat, join: Join) -> None:
        seat = replace(member, role=join.role)
        channel.places[member.member] = _Place(seat, join.epoch)
        channel.parties = max(channel.parties, join.parties)
        channel.tree.add(member.member, join.epoch, join.seat)
        self._of.setdefault(member.member, set()).add(channel.name)

    def _return(self, channel: _Channel, place: _Place, member: Seat, join: Join) -> None:
        seat = replace(member, role=join.role)
        if place.held is None:  # after a reconnect; over one connection, the coordinator knows which view it sent
            place.since = join.epoch
            place.held = join.epoch if join.epoch <= place.sent else 0
        elif join.epoch < place.held:  # it has missed an epoch
            place.since, place.held = join.epoch, 0
        if seat != place.seat or join.epoch > channel.epoch:
            place.seat = seat
            channel.tree.touch(member.member)

    def leave(self, member: str, name: str, now: float) -> None:
        """Remove a member in good order; does nothing when it is not in the channel, since Leave may arrive twice."""
        if name in self._of.get(member, ()):
            self._remove(member, name, now, lost=False)

    def drop(self, member: str, now: float, *, lost: bool) -> None:
        """Remove a member that left or was lost from all its channels."""
        for name in sorted(self._of.get(member, ())):
            self._remove(member, name, now, lost=lost)

    def cut(self, member: str) -> None:
        """The member's connection ended or was replaced: it must report again which views it has."""
        for name in self._of.get(member, ()):
            self._channels[name].places[member].held = None

    def confirm(self, member: str, now: float) -> None:
        """Remove the member, as lost, from channels that it has not joined again since its reconnect, even if it meant
        to leave them.
        """
        for name in sorted(self._of.get(member, ())):
            if self._channels[name].places[member].held is None:
                self._remove(member, name, now, lost=True)

    def _remove(self, member: str, name: str, now: float, *, lost: bool) -> None:
        channel = self._channels[name]
        channel.remove(member, lost)
        self._of[member].discard(name)
        if not self._of[member]:
            del self._of[member]
        self._schedule(channel, now)
        if not channel.places:
            del self._channels[name]
            self._due.pop(name, None)

    def _schedule(self, channel: _Channel, now: float) -> None:
        due = channel.due(now)
        if due is None:
            self._due.pop(channel.name, None)
        else:
            self._due[channel.name] = due

    def count(self, name: str) -> tuple[int, int] | None:
        """Return the number of members in a channel, and the number of parties it waits for; None for an unknown
        channel.
        """
        channel = self._channels.get(name)
        return (len(channel.places), channel.parties) if channel else None

    # -- views

    def wakes_at(self) -> float | None:
        """Return the time at which the next view is due; None without one."""
        return min(self._due.values(), default=None)

    def flush(self, now: float) -> None:
        """Send the views that are due."""
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            channel = self._channels[name]
            channel.settles_at = None
            channel.next_view_at = now + self._timing.spacing * len(channel.places)
            for member, view in channel.renew(self._epochs):
                self._post(member, view)
