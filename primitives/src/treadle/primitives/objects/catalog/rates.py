"""Objects that bound how often something happens."""

from __future__ import annotations

from typing import Any

from ..definitions import current, shared, then


@shared
class RateLimit:
    """`rate` permits a second, and up to `burst` at once after a pause."""

    def __init__(self, rate: float, burst: int = 1) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a rate of {rate} with a burst of {burst} lets no call pass")
        self.interval, self.burst = 1 / rate, burst
        self.next = 0.0
        """The time at which a permit would be due if there were no bursts (generic cell rate algorithm)."""

    def acquire(self) -> Any:
        """Wait for the next permit. Permits are given in the order of the calls, also to a caller that gives up."""
        now = current().time
        at = max(now, self.next - (self.burst - 1) * self.interval)
        self.next = max(self.next, now) + self.interval
        return then("_pass", at=at)

    def _pass(self) -> None:
        """The permit is due."""

    def try_acquire(self) -> bool:
        """Take a permit if one is due; returns whether it was."""
        now = current().time
        if self.next - (self.burst - 1) * self.interval > now:
            return False
        self.next = max(self.next, now) + self.interval
        return True
