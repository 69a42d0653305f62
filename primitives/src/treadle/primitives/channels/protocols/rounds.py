"""Rounds on which all members agree: in a new epoch the tree first finds the latest round of any member.

The knowledge of each subtree goes up the tree (`RoundStatus`), the common state comes down (`Agreed`): 2 (n - 1)
control messages for each view. Until then no member begins a round of the new epoch. This is the flush of virtual
synchrony (Birman and Joseph 1987), for one number instead of messages.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from ..errors import short
from ..messages import Agreed, Message, Payload, RoundStatus, ShufflePlan, Standing
from .collective import CollectiveMachine, OnLoss
from .membership import Roster, Send, to_all

T = TypeVar("T")
_REMEMBERED = 8
LOST = "lost "
"""Prefix of the reason of a round that failed because of a loss."""


class RoundsMachine(CollectiveMachine):
    """Maintains `standing`; `agreed` means that it is common to all members of this epoch."""

    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        super().__init__(channel, me, on_loss)
        self.standing = Standing()
        self.agreed = False
        self.entered = -1
        """The last round before this member's first round; -1: not agreed yet."""
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
            return []  # decisions of an older epoch are known here already, or never will be
        before = self.standing
        sends = self._handle(sender, message)
        return sends + (self._confide() if self.standing != before else [])

    def _handle(self, sender: str, message: Message) -> list[Send]:
        if isinstance(message, RoundStatus):
            self._statuses[sender] = message.standing
            return self._gather()
        if isinstance(message, Agreed):
            return self._settle(message.standing)
        return self._worked(sender, message)

    def _enter(self, standing: Standing) -> int:
        """Return the last round before this member's first round, given the first agreed state.

        That state may be of a later epoch than `joined`. Rounds of the epochs between concern this member.
        """
        raise NotImplementedError

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
            return [Send(parent, RoundStatus(self.channel, self.epoch, merged))]
        return self._settle(self._conclude(merged))

    def _settle(self, standing: Standing) -> list[Send]:
        if self.agreed:
            return []
        if self.entered < 0:  # from now on `standing` covers rounds that this member has a part in
            self.entered = self._enter(standing)
        self.agreed, self.standing = True, merge(self.standing, standing)
        down = to_all(self.children, Agreed(self.channel, self.epoch, self.standing))
        return down + self._resumed()

    def _conclude(self, standing: Standing) -> Standing:
        """At the root: draw the conclusions from the merged knowledge."""
        raise NotImplementedError

    def _learned(self) -> list[Send]:
        """React to rounds that are over, or begun, and that this member did not know."""
        raise NotImplementedError

    def _resumed(self) -> list[Send]:
        """Begin the rounds of the new epoch."""
        raise NotImplementedError

    def _worked(self, sender: str, message: Message) -> list[Send]:
        raise NotImplementedError


def merge(one: Standing, other: Standing) -> Standing:
    """Return the union of the knowledge of both."""
    return Standing(
        max(one.decided, other.decided),
        _latest(one.failures | other.failures),
        max(one.loss, other.loss),
        max(one.answered, other.answered),
        tuple(dict.fromkeys(one.lost + other.lost))[-_REMEMBERED:],
        merge_plans(one.plans, other.plans),
        merge_first_rounds(one.first_rounds, other.first_rounds),
        max((one.result, other.result), key=lambda result: result[0] if result else 0),
    )


def merge_plans(one: tuple[ShufflePlan, ...], other: tuple[ShufflePlan, ...]) -> tuple[ShufflePlan, ...]:
    """Merge plans by first round. For equal first rounds the later epoch wins, since no member had begun by the earlier
    plan.
    """
    plans: dict[int, ShufflePlan] = {}
    for plan in one + other:
        if plan.first not in plans or plans[plan.first].epoch < plan.epoch:
            plans[plan.first] = plan
    return tuple(plans[first] for first in sorted(plans))[-_REMEMBERED:]


def merge_first_rounds(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    """Merge by round. The later epoch wins, since no round ended between the two."""
    return _latest({number: max(one.get(number, 0), other.get(number, 0)) for number in one.keys() | other.keys()})


def fail_next(standing: Standing) -> Standing:
    """Fail the current round for a loss that no round has failed for."""
    reason = f"{LOST}{', '.join(map(short, standing.lost))}"
    return answered(failed(standing, standing.decided + 1, reason))


def failed(standing: Standing, number: int, reason: str) -> Standing:
    """Record that a round is over without a result."""
    return replace(decided(standing, number), failures=_latest(standing.failures | {number: reason}))


def answered(standing: Standing) -> Standing:
    """Record that all losses so far are handled."""
    return replace(standing, answered=standing.loss)


def decided(standing: Standing, number: int, result: Payload | None = None) -> Standing:
    """Record that a round is over, with its result if all members get it."""
    if number <= standing.decided:
        return standing
    return replace(standing, decided=number, result=standing.result if result is None else (number, result))


def _latest(rounds: dict[int, T]) -> dict[int, T]:
    return dict(sorted(rounds.items())[-_REMEMBERED:])
