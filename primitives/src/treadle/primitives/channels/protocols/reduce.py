"""Reduce: contributions are folded up the tree in n - 1 data messages; `RoundDone` comes down when the root has the
result, or `RoundResult` with it. A member folds its children's values in the order of their seats, so the grouping of
all values depends on the seats alone.

A member keeps its contribution until the round is over. When the view changes, an unfinished round restarts among
the members of the new view. After a loss it fails at all of them, unless the channel has `on_loss="go on"`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from ...errors import TreadleError
from ..errors import MemberLost, ReduceFailed
from ..messages import Message, Partial, Payload, RoundDone, RoundFailed, RoundResult, Standing
from .collective import OnLoss
from .membership import Roster, Send, to_all
from .rounds import LOST, RoundsMachine, answered, decided, fail_next, failed, merge_first_rounds


class Fold(NamedTuple):
    """Work for the user's thread: combine the left value with the encoded values on the right."""

    ticket: int
    left: Any
    right: tuple[Payload, ...]
    """The values of the next children that have arrived."""
    owned: bool
    """The left value is the result of an earlier fold, so its memory may be overwritten."""
    goes_up: bool
    """The result goes to the parent, not to the user."""


class PassUp(NamedTuple):
    """Work for the user's thread: encode this value."""

    ticket: int
    value: Any


class PassDown(NamedTuple):
    """Work for the user's thread, at the root: encode the result for all other members."""

    ticket: int
    value: Any


class ReducedRound(NamedTuple):
    """The round is over; only the root has the value."""

    is_root: bool
    value: Any
    payload: Payload | None = None
    """The value for the other members, in a round in which all members get it."""


Step = Fold | PassUp | PassDown | ReducedRound


class ReduceMachine(RoundsMachine):
    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        super().__init__(channel, me, on_loss)
        self._last = -1
        """The last round of this member's user; -1: the member has just joined."""
        self._active = False
        self._own: Any = None
        self._folded: Any = None
        self._unfolded: list[str] = []
        """Children whose values are still to be folded, in their order."""
        self._pieces: dict[tuple[int, str], Payload] = {}
        """Values that have arrived, by round and child."""
        self._folds = 0
        self._everywhere = False
        """All members get the result of the round."""
        self._ticket = 0
        self._busy = True
        self._outcome: ReducedRound | TreadleError | None = None

    # -- for the user's thread ----------

    def contribute(self, value: Any, *, everywhere: bool = False) -> list[Send]:
        """Begin the next round with this member's contribution. `everywhere`: all members get the result."""
        self._own, self._outcome, self._active, self._everywhere = value, None, True, everywhere
        return self._begin()

    def next(self) -> Step | None:
        """Return the result or, once, the next step; `folded`, `passed_up` or `passed_down` answers it. Raises
        MemberLost and ReduceFailed.
        """
        return self.outcome() or self._work()

    def _work(self) -> Fold | PassUp | PassDown | None:
        if self._busy or not self._active:
            return None
        if right := self._take_next():
            self._busy = True
            return Fold(self._ticket, self._folded, right, self._folds > 0, not self._is_root)
        if self._unfolded or (self._is_root and not self._goes_down):
            return None
        self._busy = True
        return PassDown(self._ticket, self._folded) if self._is_root else PassUp(self._ticket, self._folded)

    def _take_next(self) -> tuple[Payload, ...]:
        """Take the values of the next children, as far as they have arrived without a gap."""
        taken: list[Payload] = []
        while self._unfolded and (self._round, self._unfolded[0]) in self._pieces:
            taken.append(self._pieces.pop((self._round, self._unfolded.pop(0))))
        return tuple(taken)

    @property
    def _goes_down(self) -> bool:
        return self._everywhere and bool(self.children)

    def folded(self, ticket: int, value: Any) -> list[Send]:
        """Answer `Fold`; ignored when the round has restarted meanwhile."""
        if ticket != self._ticket or not self._active:
            return []
        self._busy, self._folded, self._folds = False, value, self._folds + 1
        return self._finish_at_root()

    def passed_up(self, ticket: int, payload: Payload) -> list[Send]:
        """Answer `PassUp`. This member's work is done, unless the round restarts."""
        parent = self.parent
        if ticket != self._ticket or not self._active or parent is None:
            return []
        return [Send(parent, Partial(self.channel, self.epoch, self._round, payload))]

    def passed_down(self, ticket: int, payload: Payload) -> list[Send]:
        """Answer `PassDown`: the round is over."""
        if ticket != self._ticket or not self._active:
            return []
        return self._decide(ReducedRound(True, self._folded, payload), result=payload)

    def give_up(self, reason: str) -> list[Send]:
        """End the current round without a result, for all members."""
        if not self._active or self._last < 0:
            return []
        return self._decide(ReduceFailed(f"{self.title}: {reason}"), reason)

    def outcome(self) -> ReducedRound | None:
        """Return the result of the current round, or None. Raises MemberLost and ReduceFailed."""
        if isinstance(self._outcome, TreadleError):
            raise self._outcome
        return self._outcome

    # -- the round ----------

    @property
    def _round(self) -> int:
        return self._last + 1

    @property
    def _is_root(self) -> bool:
        return self.parent is None

    def _begin(self) -> list[Send]:
        """Begin the round (again) in this epoch, if this member has contributed and all members agree on the round."""
        if not self._active or not self.agreed:
            return []
        if self._round <= self.standing.decided:
            self._end(self._known_outcome())
            return []
        self._ticket += 1
        self._busy, self._folded, self._folds = False, self._own, 0
        self._unfolded = list(self.children)
        return self._finish_at_root()

    def _finish_at_root(self) -> list[Send]:
        if not self._is_root or self._unfolded or self._busy or self._goes_down:
            return []
        return self._decide(ReducedRound(True, self._folded))

    def _decide(
        self, outcome: ReducedRound | TreadleError, reason: str | None = None, result: Payload | None = None
    ) -> list[Send]:
        """End the round, and inform the members that do not know of its end."""
        number = self._round
        self._end(outcome)
        return self._spread(number, reason, result=result)

    def _spread(self, number: int, reason: str | None, source: str = "", result: Payload | None = None) -> list[Send]:
        if reason is None:
            self.standing = decided(self.standing, number, result)
            done = RoundDone(self.channel, self.epoch, number)
            return to_all(self.children, RoundResult(self.channel, self.epoch, number, result) if result else done)
        self.standing = failed(self.standing, number, reason)
        others = (member for member in self.neighbours if member != source)
        return to_all(others, RoundFailed(self.channel, self.epoch, number, reason))

    def _end(self, outcome: ReducedRound | TreadleError) -> None:
        self._outcome, self._active = outcome, False
        self._last += 1
        self._own = self._folded = None
        self._unfolded = []
        self._pieces = {key: piece for key, piece in self._pieces.items() if key[0] > self._last}

    def _known_outcome(self) -> ReducedRound | TreadleError:
        """Return the outcome of a round that ended before this member was informed."""
        reason = self.standing.failures.get(self._round)
        if reason is None:
            return ReducedRound(False, None, self._result_of(self._round))
        if reason.startswith(LOST):
            return MemberLost(self.title, self.standing.lost)
        return ReduceFailed(f"{self.title}: {reason}", "The traceback is with the member named here.")

    def _result_of(self, number: int) -> Payload | None:
        known = self.standing.result
        return known[1] if known is not None and known[0] == number else None

    def _worked(self, sender: str, message: Message) -> list[Send]:
        if isinstance(message, Partial):
            return self._on_partial(sender, message)
        if isinstance(message, RoundDone | RoundResult | RoundFailed) and message.round > self.standing.decided:
            reason = message.reason if isinstance(message, RoundFailed) else None
            result = message.payload if isinstance(message, RoundResult) else None
            sends = self._spread(message.round, reason, sender, result)
            return sends + self._begin()  # this ends the round here
        return []

    def _on_partial(self, sender: str, message: Partial) -> list[Send]:
        if message.round > self.standing.decided:
            self._pieces[message.round, sender] = message.payload
        return []

    # -- views ----------

    def _moved(self, before: Roster) -> list[Send]:
        self._pieces.clear()
        self._unfolded, self._busy = [], True
        self._ticket += 1
        return super()._moved(before)

    def _conclude(self, standing: Standing) -> Standing:
        if standing.loss > standing.answered:
            standing = fail_next(standing) if self.on_loss == "fail" else answered(standing)
        first = {standing.decided + 1: self.epoch}
        return replace(standing, first_rounds=merge_first_rounds(standing.first_rounds, first))

    def _enter(self, standing: Standing) -> int:
        """Rounds may have failed since this member's first view, before it knew of any round."""
        return min(first for first, epoch in standing.first_rounds.items() if epoch >= self.joined) - 1

    def _learned(self) -> list[Send]:
        number = self.standing.decided
        return self._spread(number, self.standing.failures.get(number), result=self._result_of(number)) + self._begin()

    def _resumed(self) -> list[Send]:
        if self._last < 0:
            self._last = self.entered
        return self._begin()
