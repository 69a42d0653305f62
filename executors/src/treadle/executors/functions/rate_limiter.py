"""Delays calls until the rate allows them, in the order of arrival."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from .adaptive_rate import Rate

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
