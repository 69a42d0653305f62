"""The common part of the collectives: ordered views, early messages of later views, and one report of each loss.

A leaving member waits until all neighbours of its latest view have confirmed, in that view, that they have its values
and knowledge. It asks again when it gets more, or a newer view. So no value is lost even when all members leave at
once.

Proof: take the latest view from which any member leaves. All neighbours of a leaving member confirmed in that view, and
a neighbour that also leaves does so from the same view. So, from neighbour to neighbour along the tree, every remaining
member has received the values of the members that left from it. Values of a member that leaves from an earlier view
reach a member that leaves later, or one that remains.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

from ..errors import MemberLost
from ..messages import Leaving, Message, Moved, Noted, Payload, Standing
from .membership import NOBODY, Roster, Send, to_all

OnLoss = Literal["fail", "go on"]
_REMEMBERED = 10_000


class CollectiveMachine:
    """One member's part in one channel. Methods return the messages to send; results are polled."""

    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        self.channel, self.me, self.on_loss = channel, me, on_loss
        self.title = channel
        """The channel's name in error messages."""
        self.roster = NOBODY
        self.epoch = 0
        self.joined = 0
        """Epoch of the first view that included this member."""
        self.parent: str | None = None
        self.children: tuple[str, ...] = ()
        self.neighbours: tuple[str, ...] = ()
        self.discards: list[Payload] = []
        """Own blocks that all members have mapped; the shell frees them."""
        self._early: list[tuple[str, Message]] = []
        self._untold: list[str] = []
        self.behind = False
        """This member has missed a view. The shell resets it and joins again, which brings the present one."""
        self._losses: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        """Lost members, with the epoch in which this member was informed."""
        self._leaving = False
        self._unnoted: Counter[str] = Counter()
        """Maps a member to its number of unanswered `Leaving` messages in this view."""

    def view(self, roster: Roster) -> list[Send]:
        """Enter a newer view, or ask for it (`behind`) after one that this member has missed."""
        return [] if self._missed(roster.before) else self._enter_view(roster)

    def _missed(self, before: int) -> bool:
        """Return whether this member lacks the view of epoch `before`."""
        missed = 0 < self.epoch < before
        self.behind = self.behind or missed
        return missed

    def _enter_view(self, roster: Roster, source: str = "") -> list[Send]:
        """`source`: the member that has passed it on."""
        known = {name for epoch, name in self._losses if epoch > roster.before}
        roster = roster._replace(lost=tuple(name for name in roster.lost if name not in known))
        self._losses.extend((roster.epoch, name) for name in roster.lost)
        before, self.roster, self.epoch = self.roster, roster, roster.epoch
        self.joined = self.joined or roster.epoch
        self.parent, self.children = roster.parent(self.me), roster.children(self.me)
        self.neighbours = roster.neighbours(self.me)
        if before.epoch:
            self._untold += roster.lost
        self._unnoted.clear()
        sends = self._pass_on(source) + self._moved(before) + self._confide()
        early, self._early = self._early, []
        for sender, message in early:
            sends += self.message(sender, message)
        return sends

    def _pass_on(self, source: str) -> list[Send]:
        """Tell the other neighbours of the epoch, unless the coordinator tells all members."""
        roster = self.roster
        if not roster.told:
            return []
        moved = Moved(self.channel, roster.epoch, roster.previous, roster.told, roster.lost)
        return to_all((member for member in self.neighbours if member != source), moved)

    def _on_moved(self, source: str, moved: Moved) -> list[Send]:
        """Adopt an epoch that changes nothing next to this member."""
        epoch, previous, old = moved.epoch, moved.previous, self.roster
        if epoch <= self.epoch or self._missed(previous) or old.seat(self.me) in moved.told:
            return []
        return self._enter_view(
            Roster(epoch, old.seats, old.fan_out, moved.lost, previous, previous, moved.told), source
        )

    def message(self, sender: str, message: Message) -> list[Send]:
        """Handle a message from another member."""
        if isinstance(message, Moved) and self.epoch:
            return self._on_moved(sender, message)
        if message.epoch > self.epoch:
            self._early.append((sender, message))
            return []
        if isinstance(message, Leaving):
            return self._note(sender, message)
        if isinstance(message, Noted):
            self._noted(sender, message)
            return []
        return self._arrived(sender, message)

    # -- the end ----------

    def leave(self) -> list[Send]:
        """Prepare to leave: other members must first have all that only this member has."""
        self._leaving = True
        return self._confide()

    @property
    def left(self) -> bool:
        """Return whether, after `leave`, no other member needs this one any more."""
        return self._leaving and not self._unnoted

    def _confide(self) -> list[Send]:
        """Ask the neighbours, after sending them their missing values, to confirm that they have everything. Repeated
        for more values.
        """
        if not self._leaving:
            return []
        confidants = sorted(self._confidants())
        self._unnoted.update(confidants)
        return to_all(confidants, Leaving(self.channel, self.epoch, self._knowledge))

    def _confidants(self) -> set[str]:
        """Return the members that must have everything from this member before it leaves."""
        return set(self.neighbours)

    @property
    def _knowledge(self) -> Standing:
        return Standing()

    def _note(self, sender: str, leaving: Leaving) -> list[Send]:
        """Confirm: the paths keep order, so all earlier messages have arrived. Ignore an older view, for which the
        sender asks again.
        """
        if leaving.epoch < self.epoch:
            return []
        return [*self._learn(leaving.standing), Send(sender, Noted(self.channel, self.epoch))]

    def _learn(self, knowledge: Standing) -> list[Send]:  # noqa: ARG002
        """Take over the knowledge of a leaving member."""
        return []

    def _noted(self, sender: str, noted: Noted) -> None:
        if noted.epoch == self.epoch:
            self._unnoted[sender] -= 1
            self._unnoted += Counter()  # keeps positive counts only

    def _tell(self) -> None:
        """Raise MemberLost for losses that were not yet reported to the user."""
        lost, self._untold = self._untold, []
        if lost and self.on_loss == "fail":
            raise MemberLost(self.title, lost)

    def _moved(self, before: Roster) -> list[Send]:
        raise NotImplementedError

    def _arrived(self, sender: str, message: Message) -> list[Send]:
        raise NotImplementedError
