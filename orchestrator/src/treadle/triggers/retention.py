"""Removes the stored data of triggered runs that ended long ago.

`treadle triggers` does it periodically; `treadle gc` removes runs of every origin on request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable

from temporalio.client import Client
from temporalio.service import RPCError

from treadle.client.client import Runs
from treadle.client.garbage_collection import ROOT, Leftover, Lent, leftovers, remove_all, separated
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.protocol.messages import TRIGGER
from treadle.orchestrator.reuse.cache_entries import Entries, lent_segments
from treadle.orchestrator.run_store.run_files import Submission
from treadle.primitives.errors import CorruptError, TreadleError
from treadle.primitives.stores.store import ObjectInfo

_log = logging.getLogger("treadle.triggers")
MOST = 1000
"""Maximum runs removed in one round."""
EVERY = 3600.0
"""Seconds between two rounds."""
SOON = 60.0
"""Seconds until the next round when more runs remain, or after an error."""


class Retention:
    """Retention of one store's triggered runs. Several services may do this at the same time."""

    def __init__(self, client: Client, runs: Runs, entries: Entries, seconds: float) -> None:
        """`seconds`: data written to within this time stays."""
        self._client, self._runs, self._entries, self._seconds = client, runs, entries, seconds

    async def keep(self) -> None:
        """Remove runs periodically. Raises only CancelledError."""
        while True:
            pause = SOON
            try:
                if (removed := await self.remove(time.time())) < MOST:
                    pause = EVERY
                if removed:
                    _log.info("removed the files of %d triggered runs that are over", removed)
            except TreadleError as error:
                _log.warning("runs that are over are not removed: %s", error)
            await asyncio.sleep(pause)

    async def remove(self, now: float) -> int:
        """One round; returns the number of removed runs, at most MOST. Raises StoreError, Unreachable."""
        listed = await asyncio.to_thread(lambda: list(self._runs.store.list(ROOT)))
        old = [one for one in leftovers(listed) if one.modified < now - self._seconds]
        if not old:
            return 0
        still = await self._open()
        gone = await asyncio.to_thread(self._triggered, (one for one in old if one.run not in still))
        await asyncio.to_thread(self._remove, listed, gone, now)
        return len(gone)

    async def _open(self) -> set[str]:
        """Open triggered runs."""
        query = f"{TRIGGER} IS NOT NULL AND ExecutionStatus = 'Running'"
        try:
            return {one.id async for one in self._client.list_workflows(query)}
        except RPCError as error:
            raise Unreachable(f"Temporal does not list runs: {error.message}", "See: treadle doctor") from error

    def _triggered(self, found: Iterable[Leftover]) -> set[str]:
        gone: set[str] = set()
        for one in found:
            if len(gone) == MOST:
                break
            if self._has_trigger(one.run):
                gone.add(one.run)
        return gone

    def _has_trigger(self, run: str) -> bool:
        try:
            submission = self._runs.files(run).find(Submission, "spec")
        except CorruptError:
            return False  # of another deployment
        return submission is not None and "trigger" in submission.memo

    def _remove(self, listed: list[ObjectInfo], gone: Collection[str], now: float) -> None:
        objects, kept = separated(listed, gone, self._lent(now))
        remove_all(self._runs.store, objects, kept)

    def _lent(self, now: float) -> Lent:
        """Blocks that cached results consist of."""
        return lent_segments(one for one in self._entries.kept() if one.age(now) <= one.ttl)
