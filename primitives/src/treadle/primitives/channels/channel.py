"""The common part of the channels that user functions call. Every call returns or raises within its deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ..coordinator.messages import Join
from ..errors import TreadleError
from .gang import Gang
from .member import Member
from .member_scope import current_member
from .protocols.collective import CollectiveMachine, OnLoss
from .protocols.membership import Send

M = TypeVar("M", bound=CollectiveMachine)
_LINGER = 5.0
"""Seconds that a closing channel waits for members that have not yet mapped its blocks."""


class CollectiveChannel(Generic[M]):
    """A channel that joins at its first use or on entry of `with`, and leaves when it is closed."""

    _what = _role = ""
    _near = True
    """Its members need to know only their neighbours in the tree."""
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
        self._join = Join(self._key, parties or gang.size, fan_out, self._role, seat=self._seat(gang), near=self._near)
        self._open = False

    def _seat(self, gang: Gang) -> int:
        """The seat that this member claims. Members that join before the first view sit by rank."""
        return gang.rank

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
