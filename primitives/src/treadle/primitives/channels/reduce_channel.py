"""The channel that folds values of all members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import UsageError
from .channel import CollectiveChannel
from .errors import DeadlinePassed, short
from .gang import Gang
from .io.payloads import ArrayMemory
from .member import Member
from .messages import Payload
from .protocols.collective import OnLoss
from .protocols.membership import Send
from .protocols.reduce import Fold, PassDown, PassUp, ReducedRound, ReduceMachine, Step
from .values import fold


class ReduceChannel(CollectiveChannel[ReduceMachine]):
    """Folds one value of each member into one, along a tree of the members.

    Where all members join before the first round, the order and the grouping depend only on their number, `root` and
    `fan_out`: sums of floats are equal in every run.
    """

    _what = "reduce"
    _machine_of = ReduceMachine

    def __init__(
        self,
        name: str,
        reduce: Callable[[Any, Any], Any],
        handler: Callable[[Any], object] | None = None,
        *,
        root: int = 0,
        parties: int | None = None,
        deadline: float | None = None,
        on_loss: OnLoss = "fail",
        fan_out: int = 2,
        member: Member | None = None,
    ) -> None:
        """`reduce(a, b)` must be associative and commutative, and change neither (b may be a read-only view).

        `handler` is called with each result, at every member that receives it. `root` is the rank of the member that
        gets the results of `reduce`, the same at all members; if it has not joined, or has left, another one does. With
        `on_loss="go on"` a round restarts among the remaining members. For the other parameters see
        BroadcastChannel.
        """
        self._root = root
        super().__init__(name, parties=parties, deadline=deadline, on_loss=on_loss, fan_out=fan_out, member=member)
        self._reduce, self._handler = reduce, handler
        self._passed: Payload | None = None
        self._shown: list[Payload] = []
        """Results that this member has sent to all others, which may not have read the last of them."""
        self._room: ArrayMemory | None = None

    def reduce(self, value: Any, *, deadline: float | None = None) -> Any:
        """Return the fold of all members' values at the root of the tree, None at the other members.

        Returns when the root has the result. Raises MemberLost when a member was lost before, ReduceFailed when
        `reduce` raised at another member, DeadlinePassed, and any error that `reduce` raises here.
        """
        found = self._round(value, self._until(deadline), everywhere=False)
        return self._handled(found.value) if found.is_root else None

    def all_reduce(self, value: Any, *, deadline: float | None = None) -> Any:
        """Return the fold of all members' values, at every member; arrays and tables may be read-only views.

        Raises the errors of `reduce`, and UsageError when other members call `reduce` for this round.
        """
        found = self._round(value, self._until(deadline), everywhere=True)
        if found.is_root:
            return self._handled(found.value)
        if found.payload is None:
            raise UsageError(f"{self._machine.title}: other members do not get this result", "Call all_reduce at all.")
        return self._handled(self._member.values.decode(found.payload, for_all=True))

    def _handled(self, value: Any) -> Any:
        if self._handler is not None:
            self._handler(value)
        return value

    def _round(self, value: Any, until: float, *, everywhere: bool) -> ReducedRound:
        step = self._answer(partial(self._machine.contribute, value, everywhere=everywhere), until)
        try:
            found = self._work(step, until)
        except DeadlinePassed:
            self._give_up("a member did not take part in time")
            raise
        finally:
            self._drop_passed()
        self._drop_shown(found)
        return found

    def _drop_shown(self, found: ReducedRound) -> None:
        """Free earlier results: all members have read them before they took part in this round."""
        shown = [one for one in self._shown if one is not found.payload]
        for payload in shown:
            self._member.values.take_back(payload)
        self._shown = [one for one in self._shown if one is found.payload]

    def _work(self, step: Step | None, until: float) -> ReducedRound:
        """Carry out the machine's steps until the round is over."""
        while not isinstance(step, ReducedRound):
            if step is None:
                step = self._act(self._machine.next, until, "reduce")
            elif isinstance(step, Fold):
                step = self._answer(self._fold(step, until), until)
            elif isinstance(step, PassDown):
                step = self._answer(self._pass_down(step), until)
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

    def _pass_down(self, step: PassDown) -> Callable[[], Sequence[Send]]:
        payload = self._member.values.encode(step.value)
        self._shown.append(payload)
        return partial(self._machine.passed_down, step.ticket, payload)

    def _seat(self, gang: Gang) -> int:
        if not 0 <= self._root < gang.size:
            raise UsageError(f"root={self._root} is no rank of a gang of {gang.size}", f"Ranks: 0 .. {gang.size - 1}.")
        return (gang.rank - self._root) % gang.size

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
