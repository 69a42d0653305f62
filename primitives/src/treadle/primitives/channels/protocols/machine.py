"""What the collectives have in common: views in order, messages of later views kept until then, losses told once."""

from __future__ import annotations

from typing import Literal

from ..errors import MemberLost
from ..messages import Message, Payload
from .roster import NOBODY, Roster, Send

OnLoss = Literal["fail", "go on"]


class Machine:
    """One member's part in one channel. Methods return the messages to send; results are polled."""

    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        self.channel, self.me, self.on_loss = channel, me, on_loss
        self.title = channel
        """The channel in messages of errors."""
        self.roster = NOBODY
        self.joined = 0
        """Epoch of the first view this member was in."""
        self.parent: str | None = None
        self.children: tuple[str, ...] = ()
        self.neighbours: tuple[str, ...] = ()
        self.discards: list[Payload] = []
        """Own blocks that everybody has mapped: the shell removes them."""
        self._early: list[tuple[str, Message]] = []
        self._untold: list[str] = []

    @property
    def epoch(self) -> int:
        return self.roster.epoch

    def view(self, roster: Roster) -> list[Send]:
        """A newer view holds from now on."""
        before, self.roster = self.roster, roster
        self.joined = self.joined or roster.epoch
        self.parent, self.children = roster.parent(self.me), roster.children(self.me)
        self.neighbours = roster.neighbours(self.me)
        if before.epoch:
            self._untold += roster.lost
        sends = self._moved(before)
        early, self._early = self._early, []
        for sender, message in early:
            sends += self.message(sender, message)
        return sends

    def message(self, sender: str, message: Message) -> list[Send]:
        """Something arrived from another member."""
        if message.epoch > self.epoch:
            self._early.append((sender, message))
            return []
        return self._arrived(sender, message)

    def leave(self) -> list[Send]:
        """Prepare to leave: what only this member has must not go with it."""
        return []

    @property
    def left(self) -> bool:
        """Whether nobody needs this member any more, once `leave` was called."""
        raise NotImplementedError

    def told(self) -> None:
        """The user was told of all losses so far."""
        self._untold.clear()

    def _tell(self) -> None:
        """Raise MemberLost for losses that the user was not told of."""
        lost, self._untold = self._untold, []
        if lost and self.on_loss == "fail":
            raise MemberLost(self.title, lost)

    def _moved(self, before: Roster) -> list[Send]:
        raise NotImplementedError

    def _arrived(self, sender: str, message: Message) -> list[Send]:
        raise NotImplementedError
