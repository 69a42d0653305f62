"""The driver as a peer of its members: it runs no tasks and holds no blocks, but may request blocks as members do."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.peers import PeerServer, local_gateways
from treadle.primitives.peers.gateway import Gateway, Membership
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from .coordinator_client import ResidentCoordinatorClient
from .machine import MemberMachine

_FOREVER = 1e9


class Visitor:
    """For members that cannot be dialled. Readers in this process find it (`local_gateways`). For one event loop."""

    def __init__(
        self,
        address: str,
        session: str,
        key: bytes,
        key_of: Callable[[str], bytes],
        has: Callable[[str], bool],
        folder: Path,
    ) -> None:
        """`address`: of this driver's coordinator; `has`: whether the coordinator has a given member; `folder` stays
        empty."""
        self.name = f"driver-{secrets.token_hex(6)}"
        self._uplink = ResidentCoordinatorClient(address, session, key)
        host = HostFolder(folder)
        self._gateway = Gateway(host, key_of, Membership(self.name, session, key, self._uplink.say_threadsafe))
        self._server = PeerServer(host, key_of, forward=self._gateway.forward)
        self._present = local_gateways.Members(
            lambda member: self._uplink.connected and has(member), self._server.address
        )
        local_gateways.add(self._present)
        self._visiting = spawn(self._visit(), name="visitor")
        self._known: set[str] = set()

    async def _visit(self) -> None:
        machine = MemberMachine(self.name, "", self.name, works_until=-_FOREVER, ends=_FOREVER)
        try:
            await self._uplink.dial(_FOREVER)
            self._uplink.attend(machine, lambda _: None, self._gateway)
            await self._uplink.keep_time()
        finally:
            self._uplink.close()

    def know(self, run: str, store: str) -> None:
        """Allow the run's blocks to be passed through its store."""
        if run not in self._known:
            self._known.add(run)
            self._gateway.know(run, Store.open(store))

    async def stop(self) -> None:
        local_gateways.remove(self._present)
        self._visiting.cancel()
        await asyncio.gather(self._visiting, return_exceptions=True)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._gateway.close()
        self._server.close()
