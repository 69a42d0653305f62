"""What the parts of the coordinator have in common: its figures, its epochs, and how it says no."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ..errors import TreadleError
from .messages import ToMember

Post = Callable[[str, ToMember], None]
"""Say something to a member, by name; nothing happens while it is not connected."""

GREATEST_EPOCH = 2**53
"""Beyond it a member's word is not believed: epochs must go on rising, and stay exact everywhere."""


class Timing(Struct, frozen=True):
    """Seconds."""

    lease: float = 10.0
    """A member not heard of for so long is lost."""
    grace: float = 1.0
    """A member whose connection ended without a word has so long to come back; then to say what it is in."""
    settle: float = 2.0
    """A channel that an earlier coordinator had waits so long for its members, before its first view."""
    spacing: float = 20e-6
    """Views of a channel are at least so far apart, for each of its members: about 50,000 messages a second."""
    dial: float = 0.05
    """From `Dial` to dialling: both sides have heard of it by then."""
    broken: float = 30.0
    """A broken barrier is remembered so long, for parties that arrive late."""


class Limits(Struct, frozen=True):
    """What one run may hold: a broken member is refused before it fills the memory."""

    connections: int = 20_000
    name: int = 1_000
    """Characters of a name or address."""
    channels: int = 1_000
    """Of one member."""
    barriers: int = 10_000
    parties: int = 100_000
    fan_out: int = 1_000
    blocks: int = 100_000
    """Announced by one member."""
    located: int = 16
    """Members named in one answer: those that announced last, who are asked least so far."""
    relayed: int = 64 * 1024
    """Bytes."""
    results: int = 10_000
    """Finished tasks remembered, to accept their results again."""


class Refusal(TreadleError):
    """What a member asks for cannot be; it is told so, and nothing has changed."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject}: {reason}")
        self.subject, self.reason = subject, reason


def check(holds: bool, subject: str, reason: str) -> None:
    """Raises Refusal unless it holds."""
    if not holds:
        raise Refusal(subject[:100], reason)


class Epochs:
    """One rising count for all views and tasks, so that none of them ever falls back."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def next(self) -> int:
        self._last += 1
        return self._last

    def seen(self, epoch: int) -> None:
        """An earlier coordinator gave this one."""
        self._last = max(self._last, epoch)
