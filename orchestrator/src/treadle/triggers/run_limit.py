"""`maxActive` of triggers other than Kafka consumers: the number of open runs, as far as one process can know it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from treadle.primitives.asyncio_tasks import spawn

from .start_requests import RunStarted, Starter, end_of

FRESH = 2.0
"""Seconds for which a count of Temporal's listing is cached."""


class Full(Exception):
    """`maxActive` runs are open: no run may start now."""


class RunLimit:
    """Limits starts. Open runs are the runs started here that have not ended, or the listing's count if that is higher.
    The listing includes runs of other processes, but lags behind."""

    def __init__(self, starter: Starter, workflow: str, trigger: str) -> None:
        self.limit: int | None = None
        """None: no limit."""
        self._starter, self._workflow, self._trigger = starter, workflow, trigger
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._entering = 0
        self._listed, self._listed_at = 0, float("-inf")
        self._ended = asyncio.Event()

    @property
    def active(self) -> int | None:
        """Open runs; None: not counted."""
        return None if self.limit is None else max(len(self._watched), self._listed)

    @contextlib.asynccontextmanager
    async def entering(self) -> AsyncIterator[Callable[[RunStarted], None]]:
        """Context of one start; pass its result to the yielded function. Raises Full, Unreachable."""
        if self.limit is None:
            yield lambda _: None
            return
        await self._count()
        if max(len(self._watched) + self._entering, self._listed) >= self.limit:
            raise Full
        self._entering += 1
        try:
            yield self._entered
        finally:
            self._entering -= 1

    async def room(self, seconds: float) -> None:
        """Return when a run has ended here, or after `seconds`."""
        self._ended.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    async def close(self) -> None:
        """Stop watching runs."""
        watching = list(self._watched.values())
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    async def _count(self) -> None:
        if time.monotonic() >= self._listed_at + FRESH:
            self._listed = await self._starter.active(self._workflow, self._trigger)
            self._listed_at = time.monotonic()

    def _entered(self, started: RunStarted) -> None:
        if started.new and started.run not in self._watched:
            self._watched[started.run] = spawn(self._watch(started.run))

    async def _watch(self, run: str) -> None:
        try:
            await end_of(self._starter, run)
        finally:
            del self._watched[run]
            self._listed_at = float("-inf")
            self._ended.set()
