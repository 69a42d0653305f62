"""Checkpoints of a member: it puts its state into a block, and the gang's owner records those of all members."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..blocks import Blocks
from ..coordinator.messages import Checkpointed, FromMember, SaveState
from ..encoding.references import BlockRef
from ..errors import UsageError
from .errors import EQUALLY_OFTEN, DeadlinePassed
from .gang import Gang, state_name
from .io.payloads import INLINE, kind_of
from .io.socket_loop import Late

if TYPE_CHECKING:
    from .io.socket_loop import SocketLoop

_INLINE_ALL = 256 << 10
"""Limit in bytes of the states that one record of the ledger holds itself."""


class MemberCheckpoints:
    """`save` is for the user's threads, one at a time; all other methods need the loop's lock."""

    def __init__(self, loop: SocketLoop, gang: Gang, blocks: Blocks, say: Callable[[FromMember], None]) -> None:
        """`say` sends a message to the coordinator."""
        self._loop, self._gang, self._blocks, self._say = loop, gang, blocks, say
        self._last = gang.checkpoint
        """The number of the last checkpoint on record."""
        self._sent: SaveState | None = None
        """The state that has no answer yet."""
        self._answer: Checkpointed | None = None

    def save(self, state: Any, deadline: float) -> int:
        """See `GangContext.checkpoint`."""
        until, number = time.monotonic() + deadline, self._last + 1
        if self._sent is not None:
            raise UsageError(f"checkpoint {number} is still open", "Let the error of the call before end the function.")
        message = SaveState(number, self._put(number, state))
        self._loop.do(lambda: self._send(message))
        try:
            answer = self._loop.wait(lambda: self._answer, until)
        except Late:
            hint = f"{EQUALLY_OFTEN} If a member needs longer, give the stage a longer `timeout`."
            raise DeadlinePassed(f"checkpoint {number}: the other members took too long", hint) from None
        if answer.refused:
            raise UsageError(f"checkpoint {number}: {answer.refused}", EQUALLY_OFTEN)
        return number

    def _put(self, number: int, state: Any) -> BlockRef:
        kind, limit = kind_of(state), min(INLINE, _INLINE_ALL // self._gang.size)
        part = [state] if kind == "objects" else state
        return self._blocks.put(state_name(self._gang, number), kind, [part], "store", inline_limit=limit)

    def _send(self, message: SaveState) -> None:
        self._sent, self._answer = message, None
        self._say(message)

    def unanswered(self) -> Iterator[SaveState]:
        """The message to repeat over a new connection."""
        if self._sent is not None:
            yield self._sent

    def heard(self, answer: Checkpointed) -> None:
        if self._sent is not None and answer.checkpoint == self._sent.checkpoint:
            self._sent, self._answer = None, answer
            self._last += not answer.refused
