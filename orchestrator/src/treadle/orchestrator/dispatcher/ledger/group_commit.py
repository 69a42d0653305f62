"""The asyncio side of a ledger: group commit in the background, and waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import StoreError

from .ledger import Fenced, Ledger, Record

WINDOW = 0.05
"""Seconds that records are buffered before a write, unless a caller of `synced` waits for them."""
TRIES = 5
"""Attempts to write on a passing store error before the segment fails."""


class LedgerWriter:
    """Appends to a ledger from one event loop. `failed` is called once when the ledger can no longer be written."""

    def __init__(self, ledger: Ledger, failed: Callable[[BaseException], None]) -> None:
        self.ledger = ledger
        self._failed = failed
        self._error: BaseException | None = None
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._busy = False
        self._appended = self._written = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._task = spawn(self._write_behind(), name="ledger writer")

    def append(self, *records: Record) -> None:
        """Buffer records. Raises the error that broke the ledger, if there is one."""
        if self._error is not None:
            raise self._error
        self.ledger.append(*records)
        self._appended += len(records)
        self._wake.set()

    @property
    def mark(self) -> int:
        """The number of records appended so far. `wrote(mark)` returns whether they are written."""
        return self._appended

    def wrote(self, mark: int) -> bool:
        """Returns whether everything up to a mark is written."""
        return self._written >= mark

    def hurry(self) -> None:
        """Write the buffered records without waiting for the window to end."""
        self._hurry.set()

    async def synced(self) -> None:
        """Return once all records appended so far are written. Raises Fenced or StoreError when they cannot be."""
        if self._error is not None:
            raise self._error
        if not self.ledger.dirty and not self._busy:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        self._hurry.set()
        await waiter

    async def close(self) -> None:
        """Write the remaining records, as far as that is possible."""
        try:
            with suppress(StoreError, Fenced):
                await self.synced()
        finally:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _write_behind(self) -> None:
        while True:
            await self._wake.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(WINDOW):
                    await self._hurry.wait()
            self._wake.clear()
            self._hurry.clear()
            waiters, self._waiters = self._waiters, []
            self._busy, mark = True, self._appended
            error = await self._flush()
            self._busy = False
            self._written = self._written if error else mark
            if error is not None:
                self._error = error
                waiters += self._waiters  # waiters that came during the write must get the error too
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error) if error else waiter.set_result(None)
            if error is not None:
                self._failed(error)
                return

    async def _flush(self) -> BaseException | None:
        for attempt in range(1, TRIES + 1):
            try:
                await asyncio.to_thread(self.ledger.flush)
                return None
            except StoreError as error:
                if attempt == TRIES or not error.retryable:
                    return error
                await asyncio.sleep(0.1 * 2**attempt)
            except Exception as error:  # noqa: BLE001  # Fenced, or a defect: the owner must hear of it
                return error
        return None
