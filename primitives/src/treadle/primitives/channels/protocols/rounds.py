"""Rounds that all members agree on: in a new epoch the tree first finds out how far anybody is.

Up the tree goes what each subtree knows (`Status`), down comes what holds for all (`Agreed`); 2 (n - 1) control
messages for each view. Until then nobody begins a round of the new epoch. It is the flush of virtual synchrony
(Birman and Joseph 1987), for one number instead of messages.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..errors import short
from ..messages import Agreed, Message, Plan, Standing, Status
from .collective import Machine, OnLoss
from .membership import Roster, Send, to_all

_REMEMBERED = 8
LOST = "lost "
"""How the reason of a round begins that failed for a loss."""


class Rounds(Machine):
    """Keeps `standing`; `agreed` says whether it holds for all members of this epoch."""

    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        super().__init__(channel, me, on_loss)
        self.standing = Standing()
        self.agreed = False
        self.entered = -1
        """The last round before this member's first; -1: not agreed yet."""
        self._statuses: dict[str, Standing] = {}

    def _moved(self, before: Roster) -> list[Send]:
        if before.epoch and self.roster.lost:
            lost = tuple(dict.fromkeys(self.standing.lost + self.roster.lost))[-_REMEMBERED:]
            self.standing = replace(self.standing, loss=self.epoch, lost=lost)
        self.agreed = False
        self._statuses.clear()
        return self._gather()

    def _arrived(self, sender: str, message: Message) -> list[Send]:
        if message.epoch < self.epoch:
            return []  # what an older epoch still decides, this one has been told already or never will be
        before = self.standing
        sends = self._handle(sender, message)
        return sends + (self._confide() if self.standing != before else [])

    def _handle(self, sender: str, message: Message) -> list[Send]:
        if isinstance(message, Status):
            self._statuses[sender] = message.standing
            return self._gather()
        if isinstance(message, Agreed):
            return self._settle(message.standing)
        return self._worked(sender, message)

    def _enter(self, standing: Standing) -> int:
        """The last round before this member's first, by what was first agreed with it."""
        return standing.decided

    @property
    def _knowledge(self) -> Standing:
        return self.standing

    def _learn(self, knowledge: Standing) -> list[Send]:
        before, self.standing = self.standing, merge(self.standing, knowledge)
        news = self._learned() if self.standing.decided > before.decided else []
        return news + (self._confide() if self.standing != before else [])

    def _gather(self) -> list[Send]:
        if self.agreed or self.me not in self.roster.members:
            return []
        children = self.children
        if any(child not in self._statuses for child in children):
            return []
        merged = self.standing
        for child in children:
            merged = merge(merged, self._statuses[child])
        parent = self.parent
        if parent is not None:
            return [Send(parent, Status(self.channel, self.epoch, merged))]
        return self._settle(self._conclude(merged))

    def _settle(self, standing: Standing) -> list[Send]:
        if self.agreed:
            return []
        if self.entered < 0:  # what was noted meanwhile is of rounds that this member has a part in
            self.entered = self._enter(standing)
        self.agreed, self.standing = True, merge(self.standing, standing)
        down = to_all(self.children, Agreed(self.channel, self.epoch, self.standing))
        return down + self._resumed()

    def _conclude(self, standing: Standing) -> Standing:
        """At the root: what follows from all that is known."""
        raise NotImplementedError

    def _learned(self) -> list[Send]:
        """Rounds are over, or begun, that this member did not know of."""
        raise NotImplementedError

    def _resumed(self) -> list[Send]:
        """The new epoch's rounds may begin."""
        raise NotImplementedError

    def _worked(self, sender: str, message: Message) -> list[Send]:
        raise NotImplementedError


def merge(one: Standing, other: Standing) -> Standing:
    """What both know together."""
    return Standing(
        max(one.decided, other.decided),
        _latest(one.failures | other.failures),
        max(one.loss, other.loss),
        max(one.answered, other.answered),
        tuple(dict.fromkeys(one.lost + other.lost))[-_REMEMBERED:],
        merge_plans(one.plans, other.plans),
    )


def merge_plans(one: tuple[Plan, ...], other: tuple[Plan, ...]) -> tuple[Plan, ...]:
    """By first round; of two for the same one the later epoch's: nobody had begun by the earlier."""
    plans: dict[int, Plan] = {}
    for plan in one + other:
        if plan.first not in plans or plans[plan.first].epoch < plan.epoch:
            plans[plan.first] = plan
    return tuple(plans[first] for first in sorted(plans))[-_REMEMBERED:]


def fail_next(standing: Standing) -> Standing:
    """The round under way fails for a loss that none has failed for."""
    reason = f"{LOST}{', '.join(map(short, standing.lost))}"
    return answered(failed(standing, standing.decided + 1, reason))


def failed(standing: Standing, number: int, reason: str) -> Standing:
    """A round is over without a result."""
    return replace(decided(standing, number), failures=_latest(standing.failures | {number: reason}))


def answered(standing: Standing) -> Standing:
    """All losses so far are dealt with."""
    return replace(standing, answered=standing.loss)


def decided(standing: Standing, number: int) -> Standing:
    return replace(standing, decided=max(standing.decided, number))


def _latest(failures: dict[int, str]) -> dict[int, str]:
    return dict(sorted(failures.items())[-_REMEMBERED:])
