"""Waits for reports that are stored as objects, by listing their folders instead of requesting each object.

A listing costs the same for one call and for a thousand, and its interval grows while no reports arrive. (A poller that
requested each object, left running by mistake, once caused most of a bill: lithops-cloud/lithops#395.)
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import MissingError, StoreError
from treadle.primitives.stores.store import Store

_SHORTEST = 0.1
_LONGEST = 2.0
"""Seconds between listings of one folder."""
_GROWTH = 1.5


class Mailbox:
    """The objects that calls of one executor wait for, in any store."""

    def __init__(self) -> None:
        self._folders: dict[tuple[str, str], _Folder] = {}

    async def look(self, store: Store, name: str) -> bytes | None:
        """The object, or None if it does not exist now. Raises StoreError."""
        try:
            return await asyncio.to_thread(store.get, name)
        except MissingError:
            return None

    async def wait(self, store: Store, name: str, until: float) -> bytes | None:
        """The object as soon as it exists; None if it does not exist by `until` (seconds since the epoch).

        Store errors are retried until then. Raises StoreError if the last request fails.
        """
        while (left := until - time.time()) > 0:
            with contextlib.suppress(StoreError):
                await self._folder(store, name).seen(name, left)
                if (data := await self.look(store, name)) is not None:
                    return data
        return await self.look(store, name)

    def _folder(self, store: Store, name: str) -> _Folder:
        self._folders = {place: folder for place, folder in self._folders.items() if not folder.deserted}
        place = (store.url, name.rpartition("/")[0])
        return self._folders.setdefault(place, _Folder(store, place[1]))

    def close(self) -> None:
        """Stop listing. Waiting callers receive nothing until their time is over."""
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()


class _Folder:
    """One folder, listed while a caller waits for an object in it."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._wanted: dict[asyncio.Future[None], str] = {}
        self._watch: asyncio.Task[None] | None = None

    @property
    def deserted(self) -> bool:
        return self._watch is None or self._watch.done()

    async def seen(self, name: str, within: float) -> None:
        """Return when a listing contains the object, or after `within` seconds."""
        wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted[wanted] = name
        if self.deserted:
            self._watch = spawn(self._poll(), name=f"reports in {self._name}")
        try:
            await asyncio.wait({wanted}, timeout=within)
        finally:
            del self._wanted[wanted]

    async def _poll(self) -> None:
        pause = _SHORTEST
        while self._wanted:
            came = False
            with contextlib.suppress(StoreError):
                came = self._tell(await asyncio.to_thread(self._list))
            pause = _SHORTEST if came else min(pause * _GROWTH, _LONGEST)
            await asyncio.sleep(pause)

    def _list(self) -> set[str]:
        return {info.name for info in self._store.list(self._name)}

    def _tell(self, names: set[str]) -> bool:
        there = [future for future, name in self._wanted.items() if name in names and not future.done()]
        for future in there:
            future.set_result(None)
        return bool(there)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
