"""How fast calls are made while the provider throttles: additive increase, multiplicative decrease. Pure.

The rule is that of TCP (Chiu and Jain 1989; RFC 5681): a throttled call halves the rate, at most once for all calls
made before the last halving, since they tell nothing of the rate since; otherwise the rate grows by a constant each
second, but only while it is what holds calls back (RFC 7661: an unused allowance must not grow).
"""

from __future__ import annotations

_GROWS_AT_MOST = 1.0
"""Seconds of growth between two calls: a rate not used for longer has not been tried."""
_LEFT = 0.5
"""Of the rate, after a throttled call."""


class Rate:
    """Calls per second, with the clock (any seconds that only grow) passed in."""

    def __init__(self, start: float = 100.0, *, add: float = 50.0, least: float = 1.0, most: float = 2000.0) -> None:
        """`add`: calls per second more, each second."""
        self.now = min(max(start, least), most)
        """The rate, calls per second."""
        self._add, self._least, self._most = add, least, most
        self._free = self._made = self._lowered = float("-inf")

    def due(self, clock: float) -> float:
        """Seconds until the next call may be made; 0: at once."""
        return max(0.0, self._free - clock)

    def made(self, clock: float) -> None:
        """A call is made, which `due` allowed."""
        held_back = clock - self._free < 1 / self.now
        if held_back:
            grown = self.now + self._add * min(clock - self._made, _GROWS_AT_MOST)
            self.now = min(grown, self._most)
        self._free = max(clock, self._free) + 1 / self.now
        self._made = clock

    def throttled(self, made: float, clock: float, retry_after: float = 0.0) -> None:
        """The provider refused the call made at `made`, and perhaps said when to come again."""
        if made > self._lowered:
            self.now = max(self._least, self.now * _LEFT)
            self._lowered = clock
        self._free = max(self._free, clock + max(retry_after, 1 / self.now))
