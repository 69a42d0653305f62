"""The driver among its members: it does no tasks and holds no blocks, but may ask for theirs, as any member may."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from treadle.primitives.coordinator.messages import ToMember
from treadle.primitives.errors import TreadleError
from treadle.primitives.host import HostFolder
from treadle.primitives.peers import PeerServer, presence
from treadle.primitives.peers.gateway import Gateway, Membership
from treadle.primitives.store import Store

from .machine import Dial, Instruction, Leave, MemberMachine, Say
from .uplink import Uplink

_FOREVER = 1e9


class Visitor:
    """For members that cannot be dialled; readers of this process find it (`peers.presence`). For one event loop."""

    def __init__(
        self,
        address: str,
        session: str,
        key: bytes,
        key_of: Callable[[str], bytes],
        has: Callable[[str], bool],
        folder: Path,
    ) -> None:
        """`address`: of this driver's coordinator; `has`: whether it has a member; `folder` stays empty."""
        self.name = f"driver-{secrets.token_hex(6)}"
        self._uplink = Uplink(address, session, key, self._hear, self._broken)
        host = HostFolder(folder)
        self._gateway = Gateway(host, key_of, Membership(self.name, session, key, self._uplink.say_threadsafe))
        self._server = PeerServer(host, key_of, forward=self._gateway.forward)
        self._present = presence.Members(has, self._server.address)
        self._machine = MemberMachine(self.name, "", self.name, works_until=-_FOREVER, ends=_FOREVER)
        self._beating = asyncio.create_task(self._beat(), name="visitor")
        self._dialling = asyncio.create_task(self._dial(), name="visitor")
        self._known: set[str] = set()

    def know(self, run: str, store: str) -> None:
        """Where the run's blocks may be passed on."""
        if run not in self._known:
            self._known.add(run)
            self._gateway.know(run, Store.open(store))

    async def stop(self) -> None:
        presence.remove(self._present)
        self._beating.cancel()
        self._dialling.cancel()
        await asyncio.gather(self._beating, self._dialling, return_exceptions=True)
        self._uplink.hang_up()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._gateway.close()
        self._server.close()

    def _hear(self, message: ToMember) -> None:
        self._gateway.heard(message, self._uplink.source)
        self._perform(self._machine.heard(message, time.monotonic()))

    def _broken(self) -> None:
        self._perform(self._machine.disconnected(time.monotonic()))

    def _perform(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            match one:
                case Say(message):
                    self._uplink.say(message)
                case Dial():
                    presence.remove(self._present)
                    self._dialling = asyncio.create_task(self._dial(), name="visitor")
                case Leave():
                    presence.remove(self._present)

    async def _beat(self) -> None:
        while not self._machine.over:
            await asyncio.sleep(max(0.1, self._machine.wakes_at() - time.monotonic()))
            self._perform(self._machine.tick(time.monotonic()))

    async def _dial(self) -> None:
        with contextlib.suppress(TreadleError):
            await self._uplink.dial(_FOREVER)
            self._uplink.listen()
            self._perform(self._machine.connected(time.monotonic()))
            presence.add(self._present)
