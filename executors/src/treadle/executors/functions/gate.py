"""Calls wait here until the rate allows them, in the order they came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .rate import Rate


class Gate:
    """Shared by the slots of one executor."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._turn = asyncio.Lock()

    async def wait(self) -> float:
        """Returns when a call may be made: the moment, which `throttled` wants to know."""
        async with self._turn:
            while (wait := self.rate.due(self._clock())) > 0:  # noqa: ASYNC110 (it is a clock that is waited for)
                await asyncio.sleep(wait)
            now = self._clock()
            self.rate.made(now)
            return now

    def throttled(self, made: float, retry_after: float) -> None:
        """The call made at that moment was refused."""
        self.rate.throttled(made, self._clock(), retry_after)
