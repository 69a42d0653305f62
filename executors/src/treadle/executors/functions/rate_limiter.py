"""Delays calls until the rate allows them, in the order of arrival, and makes room for refused calls.

The rate of calls while the provider throttles: additive increase, multiplicative decrease. Pure.

The rule is that of TCP (Chiu and Jain 1989; RFC 5681). A throttled call halves the rate, unless the call was made
before the last halving: such calls give no information about the lower rate. Otherwise the rate grows by a constant
each second, but only while it delays calls (RFC 7661: an unused allowance must not grow).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

_GROWS_AT_MOST = 1.0
"""Maximum seconds of growth between two calls: a rate that was not used for longer is untested."""
_LEFT = 0.5
"""Factor applied to the rate after a throttled call."""


class Rate:
    """Calls per second. The caller passes the clock, in seconds that never decrease."""

    def __init__(self, start: float = 100.0, *, add: float = 50.0, least: float = 1.0, most: float = 2000.0) -> None:
        """`add`: increase per second, in calls per second."""
        self.now = min(max(start, least), most)
        """The current rate, in calls per second."""
        self._add, self._least, self._most = add, least, most
        self._free = self._made = self._lowered = float("-inf")

    def due(self, clock: float) -> float:
        """Seconds until the next call may be made; 0: at once."""
        return max(0.0, self._free - clock)

    def made(self, clock: float) -> None:
        """Record a call that `due` allowed."""
        held_back = clock - self._free < 1 / self.now
        if held_back:
            grown = self.now + self._add * min(clock - self._made, _GROWS_AT_MOST)
            self.now = min(grown, self._most)
        self._free = max(clock, self._free) + 1 / self.now
        self._made = clock

    def throttled(self, made: float, clock: float, retry_after: float = 0.0) -> None:
        """The provider refused the call made at `made`, and may have returned a delay for the next try."""
        if made > self._lowered:
            self.now = max(self._least, self.now * _LEFT)
            self._lowered = clock
        self._free = max(self._free, clock + max(retry_after, 1 / self.now))


_SAY_SECONDS = 60.0
"""Seconds between two warnings. Throttling never fails a run, so the log must show that it delays the run."""
_log = logging.getLogger(__name__)


class RateLimiter:
    """Shared by the slots of one executor."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._turn = asyncio.Lock()
        self._said = float("-inf")

    async def wait(self) -> float:
        """Wait until a call may be made. Returns that time, for `throttled`."""
        async with self._turn:
            while (wait := self.rate.due(self._clock())) > 0:  # noqa: ASYNC110 (waits for a clock, not an event)
                await asyncio.sleep(wait)
            now = self._clock()
            self.rate.made(now)
            return now

    def throttled(self, made: float, how: str, retry_after: float) -> None:
        """The provider refused the call made at `made`, with the message `how`."""
        now = self._clock()
        self.rate.throttled(made, now, retry_after)
        if now - self._said >= _SAY_SECONDS:
            self._said = now
            _log.warning("calls are refused (%s); %.1f are made a second now", how, self.rate.now)


class Crowding:
    """Calls that the provider refuses because too many are running, and idle members that leave to make room for them.

    Shared by all callers of one executor.
    """

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self.make_room: Callable[[int], None] | None = None
        """Ends idle members so that the given number of calls can be made. None: no members stay between calls."""

    def refused(self, call: str) -> None:
        """Record a refused call. The caller will try it again."""
        self._refused.add(call)
        if self.make_room is not None:
            self.make_room(len(self._refused))

    def over(self, call: str) -> None:
        """The call was accepted or given up, or is about to be retried. Idempotent."""
        self._refused.discard(call)
