"""The channels that user functions call, apart from reduce. Every call returns or raises within its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ..errors import UsageError
from .channel import CollectiveChannel
from .member import Member
from .member_scope import current_member
from .messages import Cast, Payload, ShufflePlan
from .protocols.broadcast import BroadcastMachine
from .protocols.collective import OnLoss
from .protocols.shuffle import ShuffleMachine, role_of
from .values import distribute

Role = Literal["both", "producer", "consumer"]
_WINDOW = 4096
"""Limit of values that a member has sent and that other members have not all received."""


class BroadcastChannel(CollectiveChannel[BroadcastMachine]):
    """A value that one member sends reaches all other members, once, and in the order of sending."""

    _what = "broadcast"
    _machine_of = BroadcastMachine

    def send(self, value: Any, *, deadline: float | None = None) -> None:
        """Send `value` to all other members. Any member may send.

        Raises MemberLost, DeadlinePassed, and DataError for a value that cannot be pickled.
        """
        until = self._until(deadline)
        payload = self._member.values.encode(value)
        self._act(partial(self._send, payload), until, "send")
        self._discard()

    def _send(self, payload: Payload) -> bool | None:
        if self._machine.unstable >= _WINDOW:
            return None
        self._member.send(self._machine.send(payload))
        return True

    def receive(self, *, deadline: float | None = None) -> Any:
        """Return the next value that another member sent; arrays and tables in it are read-only views.

        Raises MemberLost when a member was lost and no value is waiting, DeadlinePassed, and the errors of
        `Blocks.get`.
        """
        cast = self._act(self._receive, self._until(deadline), "receive")
        try:
            return self._member.values.decode(cast.payload, for_all=True)
        finally:
            if cast.payload.slice:
                self._act(lambda: self._give(self._machine.took(cast)), self._until(deadline), "receive")
            self._discard()

    def _receive(self) -> Cast | None:
        cast = self._machine.receive()
        if cast is not None and not cast.payload.slice and (sends := self._machine.took(cast)):
            self._member.send(sends)
        return cast


class ShuffleChannel(CollectiveChannel[ShuffleMachine]):
    """Each producer sends each consumer the records whose hash selects the consumer."""

    _what = "shuffle"
    _near = False
    _machine_of = ShuffleMachine

    def __init__(
        self,
        name: str,
        role: Role = "both",
        *,
        parties: int | None = None,
        deadline: float | None = None,
        on_loss: OnLoss = "fail",
        member: Member | None = None,
    ) -> None:
        """Producers and consumers are ordered by rank. For the parameters see BroadcastChannel. Raises UsageError for
        another role.
        """
        if role not in ("both", "producer", "consumer"):
            raise UsageError(f"{role!r} is no role in a shuffle", "Use both, producer or consumer.")
        member = member or current_member()
        self._role = role_of(member.gang.rank, role)
        super().__init__(name, parties=parties, deadline=deadline, on_loss=on_loss, member=member)

    def send(self, data: Any, hash: Callable[[Any], Any], *, deadline: float | None = None) -> None:
        """Send each record of `data` to the consumer `hash(record) % consumers`.

        `data` is a sequence of records, a NumPy array or an Arrow table. For an array or a table `hash` receives all
        rows and returns one integer for each. Raises MemberLost, DeadlinePassed, UsageError (a consumer does not send)
        and DataError.
        """
        until, done = self._until(deadline), False
        while not done:
            plan = self._act(self._machine.next_plan, until, "send")
            kind, pieces = distribute(data, hash, len(plan.consumers))
            payloads = self._member.values.encode_pieces(kind, pieces) if pieces else []
            done = self._act(lambda: self._send(plan, payloads), until, "send")  # noqa: B023 - called at once

    def _send(self, plan: ShufflePlan, payloads: Sequence[Payload]) -> bool:
        sends = self._machine.send(plan, payloads)
        return self._give(sends or []) and sends is not None

    def receive(self, *, deadline: float | None = None) -> list[Any]:
        """Return the pieces of the next round in the producers' order; arrays and tables are read-only views.

        A producer that left before sending counts as one without records. Raises MemberLost when a piece of a lost
        member is missing, DeadlinePassed, and UsageError (a producer does not receive).
        """
        received = self._act(self._machine.receive, self._until(deadline), "receive")
        try:
            return [[] if one is None else self._member.values.decode_piece(one) for _, one in received.pieces]
        finally:
            self._act(lambda: self._give(self._machine.took(received)), self._until(deadline), "receive")
            self._discard()

    def send_receive(self, data: Any, hash: Callable[[Any], Any], *, deadline: float | None = None) -> list[Any]:
        """`send` and then `receive`, together within the deadline."""
        until = self._until(deadline)
        self.send(data, hash, deadline=until - time.monotonic())
        return self.receive(deadline=until - time.monotonic())


class Barrier:
    """All parties pass it together, any number of times."""

    def __init__(
        self,
        name: str,
        parties: int | None = None,
        *,
        deadline: float | None = None,
        member: Member | None = None,
    ) -> None:
        """`parties`: how many members pass together; defaults to the gang's size."""
        self._member = member or current_member()
        gang = self._member.gang
        self.name, self.parties = name, parties or gang.size
        self.deadline = gang.deadline if deadline is None else deadline

    def wait(self, *, deadline: float | None = None) -> None:
        """Return once all parties have called it as often as this member.

        Raises MemberLost when a party failed or ended (then no party passes this barrier any more), and DeadlinePassed.
        """
        until = time.monotonic() + (self.deadline if deadline is None else deadline)
        self._member.wait_at(f"{self._member.gang.name}/barrier/{self.name}", self.parties, until)
