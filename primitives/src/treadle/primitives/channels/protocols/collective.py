"""What the collectives have in common: views in order, messages of later views kept until then, losses told once.

Who leaves waits until all its neighbours have said, in its latest view, that they have whatever it has; it asks again
when it gets more, or a newer view. So nothing goes with those that leave, even all at once: take the latest view that
anybody leaves from. Whoever leaves from it was answered in it by all its neighbours, and those among them that leave do
so from it too. Hence, from one to the next along its tree, whoever stays has what those have that left from it; and
what is known to somebody who leaves from an earlier view is known to one who leaves later, or stays.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from ..errors import MemberLost
from ..messages import Leaving, Message, Noted, Payload, Standing
from .membership import NOBODY, Roster, Send, to_all

OnLoss = Literal["fail", "go on"]


class Machine:
    """One member's part in one channel. Methods return the messages to send; results are polled."""

    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        self.channel, self.me, self.on_loss = channel, me, on_loss
        self.title = channel
        """The channel in messages of errors."""
        self.roster = NOBODY
        self.epoch = 0
        self.joined = 0
        """Epoch of the first view this member was in."""
        self.parent: str | None = None
        self.children: tuple[str, ...] = ()
        self.neighbours: tuple[str, ...] = ()
        self.discards: list[Payload] = []
        """Own blocks that everybody has mapped: the shell removes them."""
        self._early: list[tuple[str, Message]] = []
        self._untold: list[str] = []
        self._leaving = False
        self._unnoted: Counter[str] = Counter()
        """How often somebody was asked who has not answered in this view."""

    def view(self, roster: Roster) -> list[Send]:
        """A newer view holds from now on."""
        before, self.roster, self.epoch = self.roster, roster, roster.epoch
        self.joined = self.joined or roster.epoch
        self.parent, self.children = roster.parent(self.me), roster.children(self.me)
        self.neighbours = roster.neighbours(self.me)
        if before.epoch:
            self._untold += roster.lost
        self._unnoted.clear()
        sends = self._moved(before) + self._confide()
        early, self._early = self._early, []
        for sender, message in early:
            sends += self.message(sender, message)
        return sends

    def message(self, sender: str, message: Message) -> list[Send]:
        """Something arrived from another member."""
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
        """Prepare to leave: what only this member has must not go with it."""
        self._leaving = True
        return self._confide()

    @property
    def left(self) -> bool:
        """Whether nobody needs this member any more, once `leave` was called."""
        return self._leaving and not self._unnoted

    def _confide(self) -> list[Send]:
        """Who leaves asks whether others have all it has, after what they lack; again when it has more."""
        if not self._leaving:
            return []
        confidants = sorted(self._confidants())
        self._unnoted.update(confidants)
        return to_all(confidants, Leaving(self.channel, self.epoch, self._knowledge))

    def _confidants(self) -> set[str]:
        """Who must have what this member has before it leaves."""
        return set(self.neighbours)

    @property
    def _knowledge(self) -> Standing:
        return Standing()

    def _note(self, sender: str, leaving: Leaving) -> list[Send]:
        """All that was sent before has arrived. Of an older view: it asks again in this one."""
        if leaving.epoch < self.epoch:
            return []
        return [*self._learn(leaving.standing), Send(sender, Noted(self.channel, self.epoch))]

    def _learn(self, knowledge: Standing) -> list[Send]:  # noqa: ARG002
        """What somebody knows who leaves."""
        return []

    def _noted(self, sender: str, noted: Noted) -> None:
        if noted.epoch == self.epoch:
            self._unnoted[sender] -= 1
            self._unnoted += Counter()  # keeps what is above 0

    def _tell(self) -> None:
        """Raise MemberLost for losses that the user was not told of."""
        lost, self._untold = self._untold, []
        if lost and self.on_loss == "fail":
            raise MemberLost(self.title, lost)

    def _moved(self, before: Roster) -> list[Send]:
        raise NotImplementedError

    def _arrived(self, sender: str, message: Message) -> list[Send]:
        raise NotImplementedError
