"""The coordinator of the gangs in local slots, while a gang runs: on loopback, or where other hosts reach it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.primitives.coordinator.server import CoordinatorServer
    from treadle.primitives.wire import Identity, KeyOf


class GangCoordinator:
    """One coordinator for all gangs of an executor, in one event loop."""

    identity = ""
    """While it listens off loopback: `Gang.identity`, for these gangs only, because user code could read it."""

    def __init__(self, key_of: KeyOf, beside: str = "tcp://127.0.0.1:0") -> None:
        """`key_of` returns the key of a run by its id. It listens on a free port of the host of `beside`."""
        self._key_of, self._beside = key_of, beside
        self._server: CoordinatorServer | None = None
        self._guests = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def coordinator(self) -> AsyncIterator[CoordinatorServer]:
        """Yields the coordinator. It stops listening after the last gang. Raises WireError when it cannot
        listen."""
        async with self._turn:
            server = self._server = self._server or await self._start()
            self._guests += 1
        try:
            yield server
        finally:
            await asyncio.shield(self._leave())

    async def _start(self) -> CoordinatorServer:
        from treadle.primitives.coordinator.server import CoordinatorServer
        from treadle.primitives.wire import Address, parse

        target = parse(self._beside)
        tls = await asyncio.to_thread(self._new_identity) if target.scheme == "tls" else None
        server = CoordinatorServer(self._key_of, str(Address(target.scheme, target.host, 0)), tls=tls)
        await server.start()
        return server

    def _new_identity(self) -> Identity:
        from treadle.primitives.wire import identity_of, tls_identity

        with tempfile.TemporaryDirectory() as folder:
            self.identity = tls_identity(folder).path.read_text("ascii")
        return identity_of(self.identity)

    async def _leave(self) -> None:
        async with self._turn:
            self._guests -= 1
            if self._server is not None and not self._guests:
                server, self._server = self._server, None
                await server.stop()
