"""The interface of a function provider: make one call and report accurately how it ended."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from treadle.primitives.errors import StoreError

MEGABYTE = 1 << 20
RESERVED_MEMORY = 128 * MEGABYTE
"""Bytes of a function's memory for two interpreters and treadle."""
Ended = Literal["answered", "accepted", "crashed", "out of memory", "timed out"]
"""`accepted`: the provider took the call and sends no answer; its reports will be in the store."""


class Limits(Struct, frozen=True):
    """The provider's limits, in bytes and seconds."""

    request: int
    response: int
    seconds: float
    memory: tuple[int, ...]
    """Available function sizes, ascending. An attempt that ran out of memory moves to the next size."""
    reserve: int = RESERVED_MEMORY
    """Bytes of each size that a task cannot use: the memory of treadle's processes and of the provider's."""
    temporary: int = 0
    """Bytes of the temporary folder; 0: not known."""
    queued_seconds: float = 0.0
    """Maximum time from the acceptance of a call to its start; 0: calls begin at once."""
    repeats: bool = False
    """The provider may run one call more than once."""

    def size(self, memory: int) -> int:
        """Bytes of the smallest function with at least this memory, else of the largest."""
        return next((size for size in self.memory if size >= memory), self.memory[-1])


class Answer(Struct, frozen=True):
    """How a call ended. `response` is trusted only after its seal is checked."""

    ended: Ended
    response: bytes = b""
    how: str = ""
    """How the end was determined."""
    log: bytes = b""
    """The last part of its printed output."""
    peak_memory: int = 0
    """Bytes; 0: not reported by the provider."""
    cold: bool = False
    waited: float = 0.0
    """Seconds from the provider's acceptance of the call to its start; 0: not reported."""
    billed: float = 0.0
    """Seconds that the provider charges; 0: not reported."""


class Throttled(Exception):
    """The provider accepts no more calls now (429). The call did not run; the caller may retry it."""

    def __init__(self, how: str, retry_after: float = 0.0, *, at_once: bool = False) -> None:
        """`at_once`: too many calls are running; otherwise too many were made."""
        super().__init__(how)
        self.at_once = at_once
        self.retry_after = retry_after
        """Seconds, if the provider returned them; otherwise 0."""


class NotRun(StoreError):
    """The provider cannot be reached, or had an internal failure: the call is not running."""


class Invoker(Protocol):
    """Calls one deployed function. Retries by the provider and its client library are switched off."""

    limits: Limits

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        """Run one call in a function of at least `memory` bytes (0: the smallest), for at most `seconds`.

        Raises Throttled; NotRun; another StoreError when the answer was lost, so that the call may have run or may
        still be running; UsageError when the deployment must be corrected (no such function, no permission to call it).
        """
        ...

    async def close(self) -> None:
        """Close the connections; a later `invoke` opens new ones."""
        ...
