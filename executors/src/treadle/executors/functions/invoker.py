"""What a provider of functions must offer: one call, and the truth about how it ended."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from treadle.primitives.errors import StoreError

MEGABYTE = 1 << 20
RESERVED_MEMORY = 128 * MEGABYTE
"""Bytes of a function for two interpreters and treadle."""
Ended = Literal["answered", "accepted", "crashed", "out of memory", "timed out"]
"""`accepted`: the call was taken and goes on by itself; its reports will be in the store, and no answer follows."""


class Limits(Struct, frozen=True):
    """What the provider allows, in bytes and seconds."""

    request: int
    response: int
    seconds: float
    memory: tuple[int, ...]
    """Sizes of function there are, ascending: an attempt that ran out of memory moves to the next."""
    reserve: int = RESERVED_MEMORY
    """Bytes of each size that a task cannot have: of treadle's processes, and of the provider's beside them."""
    temporary: int = 0
    """Bytes of the temporary folder; 0: not said."""
    queued_seconds: float = 0.0
    """How long the provider may keep a call it took before it begins; 0: calls begin at once."""
    repeats: bool = False
    """The provider may run one call more than once."""

    def size(self, memory: int) -> int:
        """Bytes of the smallest function with so much memory, else of the largest."""
        return next((size for size in self.memory if size >= memory), self.memory[-1])


class Answer(Struct, frozen=True):
    """How a call ended. Bytes of `response` are trusted only once their seal was checked."""

    ended: Ended
    response: bytes = b""
    how: str = ""
    """How that was determined."""
    log: bytes = b""
    """The tail of what it printed."""
    peak_memory: int = 0
    """Bytes; 0: the provider does not say."""
    cold: bool = False
    waited: float = 0.0
    """Seconds that the provider kept the call before it began; 0: it does not say."""
    billed: float = 0.0
    """Seconds that the provider charges; 0: it does not say."""


class Throttled(Exception):
    """The provider takes no more calls now (429). The call was not run; it may be made again."""

    def __init__(self, how: str, retry_after: float = 0.0, *, at_once: bool = False) -> None:
        """`at_once`: too many calls are under way; else too many were made."""
        super().__init__(how)
        self.at_once = at_once
        self.retry_after = retry_after
        """Seconds, where the provider says."""


class NotRun(StoreError):
    """The provider cannot be reached, or failed for a reason of its own: the call is not under way."""


class Invoker(Protocol):
    """Calls one deployed function. Retries of the provider and of its client library are switched off."""

    limits: Limits

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        """Run one call in the size of at least `memory` bytes (0: the smallest), for at most `seconds`.

        Raises Throttled; NotRun; any other StoreError when the answer was lost, so that the call may or may not have
        run, or may still; UsageError when who deployed it must act (no such function, no right to call it).
        """
        ...

    async def close(self) -> None:
        """Give connections back; a later `invoke` opens new ones."""
        ...
