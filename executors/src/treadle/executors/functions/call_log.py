"""The call records of one segment in the store, from earlier drivers and from this session. A call is recorded first
and made afterwards."""

from __future__ import annotations

import asyncio
import itertools

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import MissingError
from treadle.primitives.stores.store import Store

from .call_records import CallRecord, CallsUnderWay, ObjectNames, open_calls, seal_calls


class CallBook:
    """The calls of one segment and one session. Calls recorded at the same time share an object: a thousand slots cost
    one request."""

    def __init__(self, store: Store, names: ObjectNames, key: bytes) -> None:
        self.store, self.key = store, key
        self.under_way = CallsUnderWay()
        self._names = names
        self._numbers, self._batches = itertools.count(), itertools.count()
        self._next: _Batch | None = None
        self._writer: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()
        self._loaded = False

    def reports(self) -> str:
        """The name of the object for the reports of a new call."""
        return self._names.reports(next(self._numbers))

    async def load(self) -> None:
        """Read the calls of earlier sessions, with one listing, on the first call. Raises StoreError, CorruptError."""
        async with self._loading:
            if not self._loaded:
                self.under_way.add(await asyncio.to_thread(self._earlier))
                self._loaded = True

    def _earlier(self) -> list[CallRecord]:
        found: list[CallRecord] = []
        for info in self.store.list(self._names.calls):
            try:
                found += open_calls(info.name, self.store.get(info.name), self.key)
            except MissingError:
                continue  # the run's files are being removed
        return found

    async def record(self, call: CallRecord) -> None:
        """Return when the call is recorded. Raises StoreError."""
        batch = self._next = self._next or _Batch()
        batch.calls.append(call)
        if self._writer is None or self._writer.done():
            self._writer = spawn(self._write(), name="calls of functions")
        await asyncio.shield(batch.written)

    async def _write(self) -> None:
        while (batch := self._next) is not None:
            self._next = None
            name = self._names.batch(next(self._batches))
            try:
                await asyncio.to_thread(self.store.put, name, seal_calls(name, batch.calls, self.key))
            except Exception as error:  # noqa: BLE001  raised in the waiting callers
                batch.written.set_exception(error)
            else:
                batch.written.set_result(None)


class _Batch:
    """Calls that share one object."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
