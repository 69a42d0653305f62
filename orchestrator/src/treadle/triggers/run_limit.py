"""`maxActive` of triggers that are no Kafka consumers: how many runs are open, as far as one process can know."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from treadle.primitives.asyncio_tasks import spawn

from .start_requests import Started, Starter, end_of

FRESH = 2.0
"""Seconds for which a count of Temporal's listing is good."""


class Full(Exception):
    """`maxActive` runs are open: nothing may start now."""


class Gate:
    """Lets in what may start. Counted are the runs that were started here and not seen to end, or what the listing
    says, where that is more: it knows of runs that others started, and lags behind."""

    def __init__(self, starter: Starter, workflow: str, trigger: str) -> None:
        self.limit: int | None = None
        """None: everything may start."""
        self._starter, self._workflow, self._trigger = starter, workflow, trigger
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._entering = 0
        self._listed, self._listed_at = 0, float("-inf")
        self._ended = asyncio.Event()

    @property
    def active(self) -> int | None:
        """Runs that are open; None: nobody counts."""
        return None if self.limit is None else max(len(self._watched), self._listed)

    @contextlib.asynccontextmanager
    async def entering(self) -> AsyncIterator[Callable[[Started], None]]:
        """Around one start; hand over what came of it. Raises Full, Unreachable."""
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
        """Return when a run has ended here, or after so many seconds."""
        self._ended.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    async def close(self) -> None:
        """Watch no more."""
        watching = list(self._watched.values())
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    async def _count(self) -> None:
        if time.monotonic() >= self._listed_at + FRESH:
            self._listed = await self._starter.active(self._workflow, self._trigger)
            self._listed_at = time.monotonic()

    def _entered(self, started: Started) -> None:
        if started.new and started.run not in self._watched:
            self._watched[started.run] = spawn(self._watch(started.run))

    async def _watch(self, run: str) -> None:
        try:
            await end_of(self._starter, run)
        finally:
            del self._watched[run]
            self._listed_at = float("-inf")
            self._ended.set()
