"""Errors and logs of attempts: kept whole, outside Temporal, for `treadle logs` and its users."""

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
"""Seconds that records are buffered before a write. Each window of a segment is twice as long as the one before."""
FULL = 4 << 20
"""Characters of logs and tracebacks that cause a write at once."""


class AttemptRecord(Struct, frozen=True):
    """The record of an attempt that failed or printed something."""

    segment: str
    partition: int
    attempt: int
    time: float
    failure: str = ""
    """A FailureClass. Empty: the attempt succeeded."""
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
    """Seconds since the epoch, by the worker's clock. 0: not known."""
    place: str = ""
    """File and line or row, or key, of the failed record. Empty: not known."""
    requests: dict[str, int] = {}
    charge: Charge | None = None


_encode = msgspec.json.Encoder().encode


class AttemptLog:
    """Buffers the records of one segment's epoch and writes them as objects of many lines.

    It writes while the segment runs, so errors are visible meanwhile, outlive the driver, and do not fill its memory.
    For one event loop.
    """

    def __init__(self, store: Store, prefix: str, segment: str, writer: str) -> None:
        """`writer`: a name that no other writer of the segment has or had."""
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
        """Keep a report of a failure, or one with a log."""
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
        """Write the remaining records. Raises StoreError."""
        if self._task is not None:
            self._closing = True
            self._full.set()
            await self._task
        await self._flush()

    async def _write_behind(self) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._window):
                    await self._full.wait()
            self._full.clear()
            self._window = min(2 * self._window, LONGEST_WINDOW)
            with suppress(StoreError):  # the next window tries again, and `close` raises
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
