"""Errors and logs of attempts: kept whole, outside Temporal, for `treadle logs` and the people behind it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from treadle.executors.program import Charge, Failure, Report
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.store import Store

FIRST_WINDOW, LONGEST_WINDOW = 1.0, 10.0
"""Seconds that records gather before they are written; each window of a segment is twice as long as the one before."""
FULL = 4 << 20
"""Characters of logs and tracebacks that are written at once."""


class AttemptRecord(Struct, frozen=True):
    """What is kept of an attempt that failed or printed something."""

    segment: str
    partition: int
    attempt: int
    time: float
    failure: str = ""
    """A FailureClass; empty: it succeeded."""
    final: bool = False
    how: str = ""
    stage: str = ""
    error: str = ""
    message: str = ""
    traceback: str = ""
    log: str = ""
    peak_memory: int = 0
    slot: str = ""
    started: float = 0.0
    """By the worker's clock; 0: nobody knows."""
    place: str = ""
    """File and line or row, or key, of the record that failed; empty: not known."""
    requests: dict[str, int] = {}
    charge: Charge | None = None


_encode = msgspec.json.Encoder().encode


class AttemptLog:
    """Gathers records of one segment's epoch and writes them as objects of many lines, while the segment runs: what
    went wrong is seen meanwhile, outlives the driver, and does not fill its memory. For one event loop."""

    def __init__(self, store: Store, prefix: str, segment: str, writer: str) -> None:
        """`writer` is like no other that the segment has or had."""
        self._store, self._segment = store, segment
        self._path = f"{prefix}/attempts/{segment}/{writer}"
        self._written = 0
        self._pending: list[AttemptRecord] = []
        self._size = 0
        self._window = FIRST_WINDOW
        self._full = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def add(self, report: Report, slot: str, final: bool = False) -> None:
        """Keep a report, if it says more than that all went well."""
        if not (isinstance(report, Failure) or report.log):
            return
        record = _record(self._segment, report, slot, final)
        self._pending.append(record)
        self._size += len(record.log) + len(record.traceback)
        if self._size >= FULL:
            self._full.set()
        if self._task is None:
            self._task = spawn(self._write_behind(), name="attempt log")

    async def close(self) -> None:
        """Write what is left. Raises StoreError."""
        if self._task is not None:
            self._closing = True
            self._full.set()
            await self._task
        await self._flush()

    async def _write_behind(self) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), self._window)
            self._full.clear()
            self._window = min(2 * self._window, LONGEST_WINDOW)
            with suppress(StoreError):  # the next window tries again, and `close` tells
                await self._flush()

    async def _flush(self) -> None:
        batch, self._pending, self._size = self._pending, [], 0
        if not batch:
            return
        try:
            await asyncio.to_thread(self._put, batch)
        except StoreError:
            self._pending[:0] = batch
            raise
        self._written += 1

    def _put(self, batch: list[AttemptRecord]) -> None:
        data = b"\n".join(_encode(record) for record in batch) + b"\n"
        self._store.put(f"{self._path}-{self._written:06d}.jsonl", data)


def _record(segment: str, report: Report, slot: str, final: bool) -> AttemptRecord:
    names = ["partition", "attempt", "peak_memory", "started"]
    known: dict[str, Any] = {}
    if isinstance(report, Failure):
        names += ["how", "stage", "error", "message", "traceback", "place", "requests", "charge"]
        known = {"failure": str(report.failure), "final": final}
    known |= {name: getattr(report, name) for name in names}
    log = report.log.decode("utf-8", "replace")
    return AttemptRecord(segment, time=time.time(), log=log, slot=slot, **known)
