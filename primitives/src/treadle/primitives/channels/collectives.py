"""The channels that user functions call. Every call returns or raises within its deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from ..coordinator.messages import Join
from ..errors import TreadleError, UsageError
from .errors import DeadlinePassed, short
from .io.payloads import ArrayMemory
from .member import Member
from .member_scope import current_member
from .messages import Cast, Payload, ShufflePlan
from .protocols.broadcast import BroadcastMachine
from .protocols.collective import CollectiveMachine, OnLoss
from .protocols.membership import Send
from .protocols.reduce import Fold, PassUp, ReducedRound, ReduceMachine, Step
from .protocols.shuffle import ShuffleMachine, role_of
from .values import distribute, fold

M = TypeVar("M", bound=CollectiveMachine)
Role = Literal["both", "producer", "consumer"]
_WINDOW = 4096
"""Limit of values that a member has sent and that other members have not all received."""
_LINGER = 5.0
"""Seconds that a closing channel waits for members that have not yet mapped its blocks."""


class _Channel(Generic[M]):
    """A channel that joins at its first use or on entry of `with`, and leaves when it is closed."""

    _what = _role = ""
    _machine_of: type[M]

    def __init__(
        self,
        name: str,
        *,
        parties: int | None = None,
        deadline: float | None = None,
        on_loss: OnLoss = "fail",
        fan_out: int = 2,
        member: Member | None = None,
    ) -> None:
        """`parties`: how many members must have joined before the first operation; defaults to the gang's size.

        `deadline`: seconds that an operation may take; defaults to the gang's. `on_loss`: with `fail` every member
        raises MemberLost once for a loss, with `go on` none does. `fan_out` is that of the tree.
        """
        self.name = name
        self._member = member or current_member()
        gang = self._member.gang
        self.deadline = gang.deadline if deadline is None else deadline
        self._key = f"{gang.name}/{self._what}/{name}"
        self._on_loss = on_loss
        self._machine = self._new_machine()
        self._join = Join(self._key, parties or gang.size, fan_out, self._role)
        self._open = False

    def _new_machine(self) -> M:
        machine = self._machine_of(self._key, self._member.name, self._on_loss)
        machine.title = f"{self._what} channel {self.name}"
        return machine

    def join(self) -> None:
        """Join now instead of at the first use. Returns at once."""
        if not self._open:
            self._member.join(self._join, self._machine, self.close)
            self._open = True

    def close(self) -> None:
        """Leave the channel in good order."""
        if self._open:
            if self._machine.epoch:
                self._linger()
            self._open = False
            self._member.leave(self._key)
            self._machine = self._new_machine()  # a later join is that of a new member

    def _linger(self) -> None:
        """Wait for a short time for members that still need a value or block of this member."""
        with contextlib.suppress(TreadleError):  # those members fail, or the end of the run frees their share of memory
            until = min(time.monotonic() + min(_LINGER, self.deadline), self._member.leaves_by)
            self._act(lambda: self._give(self._machine.leave()), until, "close")
            self._act(lambda: self._machine.left or None, until, "close")
        self._discard()

    def _give(self, sends: Sequence[Send]) -> bool:
        """Send messages, for use as a poll or at the end of one."""
        if sends:
            self._member.send(sends)
        return True

    def _discard(self) -> None:
        """Free the memory of blocks that all members have mapped."""
        while self._machine.discards:
            self._member.values.take_back(self._machine.discards.pop())

    def _act(self, poll: Callable[[], Any], deadline: float, what: str) -> Any:
        if not self._open:
            self.join()
        return self._member.act(self._key, poll, deadline, what)

    def _until(self, deadline: float | None) -> float:
        return time.monotonic() + (self.deadline if deadline is None else deadline)

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BroadcastChannel(_Channel[BroadcastMachine]):
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
            return self._member.values.decode(cast.payload)
        finally:
            if cast.payload.slice:
                self._act(lambda: self._give(self._machine.took(cast)), self._until(deadline), "receive")
            self._discard()

    def _receive(self) -> Cast | None:
        cast = self._machine.receive()
        if cast is not None and not cast.payload.slice and (sends := self._machine.took(cast)):
            self._member.send(sends)
        return cast


class ReduceChannel(_Channel[ReduceMachine]):
    """Folds one value of each member into one, in any order and any grouping."""

    _what = "reduce"
    _machine_of = ReduceMachine

    def __init__(
        self,
        name: str,
        reduce: Callable[[Any, Any], Any],
        handler: Callable[[Any], object] | None = None,
        *,
        parties: int | None = None,
        deadline: float | None = None,
        on_loss: OnLoss = "fail",
        fan_out: int = 2,
        member: Member | None = None,
    ) -> None:
        """`reduce(a, b)` must be associative and commutative, and change neither (b may be a read-only view).

        `handler` is called with each result, at the member that receives it. With `on_loss="go on"` a round begins
        again among the remaining members. For the other parameters see BroadcastChannel.
        """
        super().__init__(name, parties=parties, deadline=deadline, on_loss=on_loss, fan_out=fan_out, member=member)
        self._reduce, self._handler = reduce, handler
        self._passed: Payload | None = None
        self._room: ArrayMemory | None = None

    def reduce(self, value: Any, *, deadline: float | None = None) -> Any:
        """Return the fold of all members' values at the root of the tree, None at the other members.

        Returns when the root has the result. Raises MemberLost when a member was lost before, ReduceFailed when
        `reduce` raised at another member, DeadlinePassed, and any error that `reduce` raises here.
        """
        until = self._until(deadline)
        step = self._answer(partial(self._machine.contribute, value), until)
        try:
            result = self._work(step, until)
        except DeadlinePassed:
            self._give_up("a member did not take part in time")
            raise
        finally:
            self._drop_passed()
        if result.is_root and self._handler is not None:
            self._handler(result.value)
        return result.value

    def _work(self, step: Step | None, until: float) -> ReducedRound:
        """Carry out the machine's steps until the round is over."""
        while not isinstance(step, ReducedRound):
            if step is None:
                step = self._act(self._machine.next, until, "reduce")
            elif isinstance(step, Fold):
                step = self._answer(self._fold(step, until), until)
            else:
                step = self._answer(self._pass_up(step), until)
        return step

    def _answer(self, answer: Callable[[], Sequence[Send]], until: float) -> Step | None:
        """Give the machine the result of a step. Returns the next step, if it is known."""

        def poll() -> tuple[Step | None]:
            self._give(answer())
            return (self._machine.next(),)

        found: tuple[Step | None] = self._act(poll, until, "reduce")
        return found[0]

    def _fold(self, step: Fold, until: float) -> Callable[[], Sequence[Send]]:
        try:
            right = [self._member.values.decode(one) for one in step.right]
            value = fold(self._reduce, step.left, right, owned=step.owned, room=partial(self._make_room, step))
        except Exception as error:
            self._act(self._still_wanted, until, "reduce")  # raises if the round has failed meanwhile
            self._give_up(f"reduce raised {type(error).__name__} at {short(self._member.name)}: {error}")
            raise
        return partial(self._machine.folded, step.ticket, value)

    def _make_room(self, step: Fold, like: Any) -> Any:
        """Return memory that can be sent, for the first fold of a round, when the result goes to the parent; otherwise
        None.
        """
        self._leave_room()
        if not step.goes_up:
            return None
        self._room = self._member.values.room(like)
        return None if self._room is None else self._room.array

    def _leave_room(self) -> None:
        if self._room is not None:
            room, self._room = self._room, None
            self._member.values.leave(room)

    def _pass_up(self, step: PassUp) -> Callable[[], Sequence[Send]]:
        room = None
        if self._room is not None and step.value is self._room.array:
            room, self._room = self._room, None
        payload = self._member.values.encode(step.value, room)
        self._drop_passed()
        self._passed = payload
        return partial(self._machine.passed_up, step.ticket, payload)

    def _still_wanted(self) -> bool:
        self._machine.outcome()
        return True

    def _give_up(self, reason: str) -> None:
        self._act(lambda: self._give(self._machine.give_up(reason)), self._until(1), "reduce")

    def _drop_passed(self) -> None:
        """The round is over or restarts: all its readers have read the block."""
        self._leave_room()
        if self._passed is not None:
            self._member.values.take_back(self._passed)
            self._passed = None


class ShuffleChannel(_Channel[ShuffleMachine]):
    """Each producer sends each consumer the records whose hash selects the consumer."""

    _what = "shuffle"
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
