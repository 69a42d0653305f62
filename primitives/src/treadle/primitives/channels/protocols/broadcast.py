"""Broadcast: a value floods the tree from its sender's seat, in n - 1 messages; each member delivers it at most once.

Each member keeps a log of received values in order of arrival, until all users have received them. A link between two
members transmits the log in order, without values that the other side is known to have. So a member that receives a
value has already received everything that its sender had (causal order, by induction over links).

When the tree changes, new neighbours first exchange lists of the values that they have, then send the missing values:
if one survivor has a value, all receive it. The acknowledgement of stable messages follows Birman and Joseph, Reliable
communication in the presence of failures (1987).
"""

from __future__ import annotations

from collections import deque

from ..messages import Cast, Have, Message, Payload, Stable, Taken
from .collective import CollectiveMachine, OnLoss
from .membership import Roster, Send, to_all

_REPORT_EVERY = 64
"""A member acknowledges after this many messages; at once for a block, which can then be freed."""


class BroadcastMachine(CollectiveMachine):
    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        super().__init__(channel, me, on_loss)
        self._log: deque[Cast] = deque()
        self._inbox: deque[Cast] = deque()
        self._have: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._stable: dict[str, int] = {}
        self._since_report = 0
        self._subtree: dict[str, dict[str, int]] = {}
        self._reported: dict[str, int] = {}
        self._synced: set[str] = set()
        self._asked: dict[str, int] = {}
        self._name = me
        """This member's name as a sender, with its first epoch: a member that joins again counts from 1 again."""

    # -- for the user ----------

    def send(self, payload: Payload) -> list[Send]:
        """Send the value to all other members. Raises MemberLost once after a loss."""
        if self._untold:
            self._tell()
        number = self._have.get(self._name, 0) + 1
        cast = Cast(self.channel, self.epoch, self._name, number, self.epoch, payload)
        self._taken[self._name] = number
        return self._append(cast, "") + self._count(cast)

    def receive(self) -> Cast | None:
        """Return the next value, or None; `took` must follow a value. Raises MemberLost once after a loss."""
        if self._inbox:
            return self._inbox.popleft()
        if self._untold:
            self._tell()
        return None

    def took(self, cast: Cast) -> list[Send]:
        """The user has the value, and its block is mapped."""
        self._taken[cast.sender] = cast.number
        return self._count(cast)

    @property
    def unstable(self) -> int:
        """Number of own values that not all members have received."""
        return self._have.get(self._name, 0) - self._stable.get(self._name, 0) if self.neighbours else 0

    @property
    def left(self) -> bool:
        """Return whether neighbours have all values of this member, and all its blocks are mapped."""
        if not self.neighbours:
            return True
        asked = self._synced.issuperset(self.neighbours)
        return super().left and asked and not any(c.payload.slice and c.sender == self._name for c in self._log)

    def _confidants(self) -> set[str]:
        """Only neighbours that were sent their missing values; others are asked after that."""
        return self._synced.intersection(self.neighbours)

    # -- the flood ----------

    def _append(self, cast: Cast, source: str) -> list[Send]:
        self._have[cast.sender] = cast.number
        self._log.append(cast)
        sends = []
        for member in self.neighbours:
            if member != source and member in self._synced:
                sends.append(Send(member, self._passed_on(cast)))
        return sends

    def _passed_on(self, cast: Cast) -> Cast:
        if cast.epoch == self.epoch:
            return cast
        return Cast(cast.channel, self.epoch, cast.sender, cast.number, cast.born, cast.payload)

    def _arrived(self, sender: str, message: Message) -> list[Send]:
        if isinstance(message, Cast):
            return self._on_cast(sender, message)
        if isinstance(message, Have):
            return self._on_have(sender, message)
        if isinstance(message, Taken) and message.epoch == self.epoch:
            self._subtree[sender] = message.numbers
            return self._report()
        if isinstance(message, Stable):
            return self._on_stable(message)
        return []

    def _on_cast(self, source: str, cast: Cast) -> list[Send]:
        if cast.number <= self._have.get(cast.sender, 0):
            return []
        if cast.born < self.joined:  # sent before this member joined: only pass it on
            self._taken[cast.sender] = cast.number
        else:
            self._inbox.append(cast)
        sends = self._append(cast, source)
        return sends + self._confide() if self._leaving else sends

    # -- a new tree ----------

    def _moved(self, before: Roster) -> list[Send]:
        if not before.epoch:
            self._name = f"{self.me}@{self.epoch:x}"
        self._synced &= set(self.neighbours)
        sends: list[Send] = []
        for member in self.neighbours:
            if member in self._synced:
                continue
            if before.epoch:
                sends.append(self._ask(member))
            else:  # this member has just joined and has no values
                self._synced.add(member)
                sends += [Send(member, self._passed_on(cast)) for cast in self._log]
        self._subtree.clear()
        return sends + (self._report(due=True) if self._have else [])

    def _ask(self, member: str) -> Send:
        self._asked[member] = self.epoch
        return Send(member, Have(self.channel, self.epoch, dict(self._have)))

    def _on_have(self, sender: str, have: Have) -> list[Send]:
        if sender not in self.neighbours:
            return []
        sends = [] if self._asked.get(sender, 0) >= have.epoch else [self._ask(sender)]
        self._synced.add(sender)
        lacking = (cast for cast in self._log if cast.number > have.numbers.get(cast.sender, 0))
        return sends + [Send(sender, self._passed_on(cast)) for cast in lacking] + self._confide()

    # -- acknowledgement ----------

    def _count(self, cast: Cast) -> list[Send]:
        self._since_report += _REPORT_EVERY if cast.payload.slice else 1
        return self._report(due=True) if self._since_report >= _REPORT_EVERY else []

    def _report(self, due: bool = False) -> list[Send]:
        """Send the minimum of this subtree to the parent once all children have reported; the root sends it down."""
        children = self.children
        if any(child not in self._subtree for child in children) and children:
            return []
        if not (due or children):
            return []
        self._since_report = 0
        vectors = [self._taken] + [self._subtree[child] for child in children]
        least = {sender: min(vector.get(sender, 0) for vector in vectors) for sender in self._taken}
        if least == self._reported and not due:
            return []
        self._reported = least
        parent = self.parent
        if parent is not None:
            return [Send(parent, Taken(self.channel, self.epoch, least))]
        return self._on_stable(Stable(self.channel, self.epoch, least))

    def _on_stable(self, stable: Stable) -> list[Send]:
        news = {s: n for s, n in stable.numbers.items() if n > self._stable.get(s, 0)}
        if not news:
            return []
        self._stable.update(news)
        kept: deque[Cast] = deque()
        for cast in self._log:
            if cast.number > self._stable.get(cast.sender, 0):
                kept.append(cast)
            elif cast.sender == self._name and cast.payload.slice:
                self.discards.append(cast.payload)
        self._log = kept
        return to_all(self.children, Stable(self.channel, self.epoch, stable.numbers))
