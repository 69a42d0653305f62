"""The coordinator of the gangs in the slots of one host: on loopback, while a gang runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.primitives.coordinator.server import CoordinatorServer


class GangCoordinator:
    """One coordinator for all gangs of an executor, in one event loop."""

    def __init__(self, key_of: Callable[[str], bytes]) -> None:
        """`key_of` returns the key of a run by its id."""
        self._key_of = key_of
        self._server: CoordinatorServer | None = None
        self._guests = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def coordinator(self) -> AsyncIterator[str]:
        """Yields the coordinator's address. It stops listening after the last gang. Raises WireError when it cannot
        listen."""
        async with self._turn:
            self._server = self._server or await self._start()
            address = self._server.address
            self._guests += 1
        try:
            yield address
        finally:
            await asyncio.shield(self._leave())

    async def _start(self) -> CoordinatorServer:
        from treadle.primitives.coordinator.server import CoordinatorServer

        server = CoordinatorServer(self._key_of)
        await server.start()
        return server

    async def _leave(self) -> None:
        async with self._turn:
            self._guests -= 1
            if self._server is not None and not self._guests:
                server, self._server = self._server, None
                await server.stop()
