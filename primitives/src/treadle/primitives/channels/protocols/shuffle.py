"""Shuffle: in each round every producer sends one piece, possibly empty, to every consumer.

The plan of a round names its producers and consumers, the same for all members. A new view makes a new plan for the
rounds that no member has begun. A begun round ends by its own plan. It does not wait for members that have left, and it
fails where a piece of a lost member is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...errors import UsageError
from ..errors import MemberLost
from ..messages import Got, Message, Payload, Pieces, ShufflePlan, Standing
from .collective import OnLoss
from .membership import Roster, Send
from .rounds import RoundsMachine, merge_plans


class ReceivedRound(NamedTuple):
    """The pieces of a round by producer; None: the producer left, or failed, without sending its piece."""

    round: int
    pieces: list[tuple[str, Payload | None]]


class ShuffleMachine(RoundsMachine):
    def __init__(self, channel: str, me: str, on_loss: OnLoss = "fail") -> None:
        super().__init__(channel, me, on_loss)
        self._sent = self._received = -1
        self._pieces: dict[tuple[int, int, str], Payload | None] = {}
        self._lost: set[str] = set()
        self._served: set[str] = set()
        """Members to which pieces were sent."""
        self._outstanding: dict[int, tuple[Payload, set[str]]] = {}

    # -- for the user ----------

    def next_plan(self) -> ShufflePlan | None:
        """Return the plan of the next `send`; None until it is agreed. Raises MemberLost, UsageError."""
        plan = self._plan(self._sent)
        if plan is None:
            return None
        self._check_untold(self._sent)
        if self.me not in plan.producers:
            raise UsageError(f"{self.title}: a consumer does not send", 'Join with role="both" or "producer".')
        return plan

    def send(self, plan: ShufflePlan, pieces: Sequence[Payload]) -> list[Send] | None:
        """Send this member's pieces of its next round, one for each consumer; None when the plan has
        changed meanwhile.
        """
        if self.next_plan() != plan:
            return None
        self._sent += 1
        self.standing = replace(self.standing, decided=max(self.standing.decided, self._sent))
        sends = []
        for consumer, payload in zip(plan.consumers, pieces, strict=True):
            if consumer == self.me:
                self._pieces[plan.epoch, self._sent, self.me] = payload
            elif consumer in self.roster.members:
                self._served.add(consumer)
                sends.append(Send(consumer, Pieces(self.channel, self.epoch, self._sent, plan.epoch, payload)))
        if pieces and pieces[0].slice:
            self._outstanding[self._sent] = (pieces[0], set(plan.consumers))
        return sends

    def receive(self) -> ReceivedRound | None:
        """Return the pieces of this member's next round, in the producers' order, or None while some are missing.

        `took` must follow. Raises MemberLost when a piece can no longer arrive, and UsageError when this member is not
        a consumer.
        """
        plan = self._plan(self._received)
        if plan is None:
            return None
        number = self._received + 1
        self._check_untold(self._received)
        if self.me not in plan.consumers:
            raise UsageError(f"{self.title}: a producer does not receive", 'Join with role="both" or "consumer".')
        missing = [one for one in plan.producers if (plan.epoch, number, one) not in self._pieces]
        lost = [one for one in missing if one in self._lost]
        if lost and self.on_loss == "fail":
            self._take(plan, number)
            self._untold.clear()  # the error below reports the loss
            raise MemberLost(self.title, lost)
        if any(one in self.roster.members for one in missing):
            return None
        return self._take(plan, number)

    def took(self, received: ReceivedRound) -> list[Send]:
        """The user has the pieces, and their blocks are mapped."""
        got = Got(self.channel, self.epoch, received.round)
        sends = []
        for producer, payload in received.pieces:
            if producer == self.me:
                self._mapped(self.me, received.round)
            elif payload is not None and payload.slice and producer in self.roster.members:
                sends.append(Send(producer, got))
        return sends

    @property
    def left(self) -> bool:
        """Return whether neighbours know this member's rounds, and all its blocks are mapped."""
        return super().left and not self._outstanding

    def _mapped(self, consumer: str, number: int) -> None:
        if number in self._outstanding:
            payload, consumers = self._outstanding[number]
            consumers.discard(consumer)
            if not consumers:
                del self._outstanding[number]
                self.discards.append(payload)

    # -- rounds ----------

    def _plan(self, last: int) -> ShufflePlan | None:
        """Return the plan of the round after `last`; None when it is not agreed yet."""
        if last < 0 or not (self.agreed or last < self.standing.decided):
            return None
        return _plan_of(self.standing.plans, last + 1)

    def _check_untold(self, last: int) -> None:
        """Raise MemberLost for a new loss; a round that began before the loss reports it by itself."""
        if last >= self.standing.decided:
            self._tell()

    def _take(self, plan: ShufflePlan, number: int) -> ReceivedRound:
        self._received = number
        pieces = [(one, self._pieces.pop((plan.epoch, number, one), None)) for one in plan.producers]
        for key in [key for key in self._pieces if key[1] <= number]:
            del self._pieces[key]  # pieces of a plan that was replaced
        return ReceivedRound(number, pieces)

    def _worked(self, sender: str, message: Message) -> list[Send]:
        raise NotImplementedError

    def _arrived(self, sender: str, message: Message) -> list[Send]:
        if isinstance(message, Got):
            self._mapped(sender, message.round)
            return []
        if not isinstance(message, Pieces):
            return super()._arrived(sender, message)
        if message.round > self._received:  # pieces of an older epoch too: the plan decides
            self._pieces[message.plan, message.round, sender] = message.payload
        return []

    # -- views ----------

    def _moved(self, before: Roster) -> list[Send]:
        self._lost.update(self.roster.lost)
        for gone in set(before.members) - set(self.roster.members):
            for number in list(self._outstanding):
                self._mapped(gone, number)
        return super()._moved(before)

    def _conclude(self, standing: Standing) -> Standing:
        plan = _make_plan(self.roster, standing.decided + 1)
        return replace(standing, plans=merge_plans(standing.plans, (plan,)), answered=standing.loss)

    def _enter(self, standing: Standing) -> int:
        """Other members may have begun rounds that this member has a part in."""
        mine = [plan.first for plan in standing.plans if plan.epoch >= self.joined and self._takes_part(plan)]
        return min(mine) - 1

    def _takes_part(self, plan: ShufflePlan) -> bool:
        return self.me in plan.producers or self.me in plan.consumers

    def _confidants(self) -> set[str]:
        """Consumers too: once they confirm, the pieces sent to them have arrived."""
        return (super()._confidants() | self._served) & set(self.roster.members)

    def _learned(self) -> list[Send]:
        return []

    def _resumed(self) -> list[Send]:
        if self._sent < 0:
            self._sent = self._received = self.entered
        return []


def role_of(rank: int, role: str) -> str:
    """Return the role in a member's seat; it makes producers and consumers sort by rank."""
    return f"{rank:08}/{role}"


def _make_plan(roster: Roster, first: int) -> ShufflePlan:
    ranked = sorted((seat.role.partition("/")[0], place, seat) for place, seat in roster.seats.items())
    seats = [seat for _, _, seat in ranked]
    producers = tuple(seat.member for seat in seats if not seat.role.endswith("consumer"))
    consumers = tuple(seat.member for seat in seats if not seat.role.endswith("producer"))
    return ShufflePlan(first, roster.epoch, producers, consumers)


def _plan_of(plans: Sequence[ShufflePlan], number: int) -> ShufflePlan:
    return max((plan for plan in plans if plan.first <= number), key=lambda plan: plan.first)
