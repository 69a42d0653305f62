"""Calls wait here until the rate allows them, in the order they came."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from .adaptive_rate import Rate

_SAY_SECONDS = 60.0
"""Between two warnings: throttling never fails a run, so somebody should see that it is what a run waits for."""
_log = logging.getLogger(__name__)


class Gate:
    """Shared by the slots of one executor."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._turn = asyncio.Lock()
        self._said = float("-inf")

    async def wait(self) -> float:
        """Returns when a call may be made: the moment, which `throttled` wants to know."""
        async with self._turn:
            while (wait := self.rate.due(self._clock())) > 0:  # noqa: ASYNC110 (it is a clock that is waited for)
                await asyncio.sleep(wait)
            now = self._clock()
            self.rate.made(now)
            return now

    def throttled(self, made: float, how: str, retry_after: float) -> None:
        """The call made at that moment was refused, in these words."""
        now = self._clock()
        self.rate.throttled(made, now, retry_after)
        if now - self._said >= _SAY_SECONDS:
            self._said = now
            _log.warning("calls are refused (%s); %.1f are made a second now", how, self.rate.now)
