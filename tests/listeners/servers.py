"""Each listener in a separate process with few descriptors: `python -m listeners.servers NAME DESCRIPTORS`.

Prints the listener's address, logs to stderr, and ends when its stdin is closed.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import secrets
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.primitives.wire import Identity

RUN, KEY = "run-1", bytes(range(32))
NONCE = "0123abcd"
"""The nonce in the name of a keeper."""
SECONDS = 4.0
"""Time for a stranger to authenticate; shorter than the real limit, to keep tests short."""


def announce(address: str) -> None:
    print(address, flush=True)  # noqa: T201


async def until_told() -> None:
    await asyncio.to_thread(sys.stdin.read)


async def coordinator(_: Path) -> None:
    from treadle.primitives.coordinator import server

    server.HANDSHAKE_SECONDS = SECONDS
    async with server.CoordinatorServer({RUN: KEY}.get) as found:
        announce(found.address)
        await until_told()


async def coordinator_tls(folder: Path) -> None:
    from treadle.primitives.coordinator import server
    from treadle.primitives.wire import tls_identity

    server.HANDSHAKE_SECONDS = SECONDS
    async with server.CoordinatorServer({RUN: KEY}.get, "tls://127.0.0.1:0", tls=tls_identity(folder)) as found:
        announce(found.address)
        await until_told()


async def peers(folder: Path) -> None:
    from treadle.primitives.peers import server
    from treadle.primitives.stores.shared_memory import HostFolder

    server._GREETING = SECONDS  # private: the test shortens a time limit
    host = HostFolder(folder / "host")
    host.put(f"{RUN}/s/a", [b"abc"])
    with server.PeerServer(host, {RUN: KEY}.get) as found:
        announce(found.address)
        await until_told()


async def member(folder: Path) -> None:
    from treadle.primitives.blocks import Blocks
    from treadle.primitives.channels.gang import Gang
    from treadle.primitives.channels.io import peer_routes
    from treadle.primitives.channels.member import Member
    from treadle.primitives.coordinator.server import CoordinatorServer
    from treadle.primitives.stores.shared_memory import HostFolder
    from treadle.primitives.stores.store import Store

    peer_routes._DIALLING = SECONDS  # private: the test shortens a time limit
    blocks = Blocks(Store.open((folder / "store").as_uri()), RUN, HostFolder(folder / "host"))
    async with CoordinatorServer({RUN: KEY}.get) as found:
        gang = Gang(found.address, RUN, "g", 0, 1)
        joined = await asyncio.to_thread(Member, gang, KEY, blocks)
        announce(joined.address)
        await until_told()
        await asyncio.to_thread(joined.close)


async def keeper(folder: Path, address: str = "tcp://127.0.0.1:0", tls: Identity | None = None) -> None:
    from treadle.primitives.objects import keeper as module
    from treadle.primitives.stores.store import Store

    module.HANDSHAKE_SECONDS = SECONDS
    secrets.token_hex = lambda nbytes=None: NONCE  # the caller knows only the address
    store = Store.open((folder / "store").as_uri())
    async with module.Keeper(store, KEY, address=address, tls=tls) as found:
        announce(found.name.partition("#")[0])
        await until_told()


async def keeper_tls(folder: Path) -> None:
    from treadle.primitives.wire import tls_identity

    await keeper(folder, "tls://127.0.0.1:0", tls_identity(folder))


async def webhooks(folder: Path) -> None:
    from triggers.test_webhook import Hooks

    from treadle.triggers.webhook import server

    server.REQUEST_SECONDS = SECONDS
    hooks = Hooks(folder)
    await hooks.start()
    announce(hooks.url)
    await until_told()
    await hooks.stop()


async def metrics(_: Path) -> None:
    from treadle.orchestrator.telemetry import metrics_server

    metrics_server.REQUEST_SECONDS = SECONDS
    with metrics_server.metrics_page("127.0.0.1:0") as url:
        announce(url)
        await until_told()


async def lender(folder: Path) -> None:
    from treadle.orchestrator.dispatcher.driver_context.run_context import DriverContext
    from treadle.orchestrator.dispatcher.driver_context.slot_pool import Pools
    from treadle.orchestrator.dispatcher.lending import slot_lender
    from treadle.primitives.stores.store import Store

    slot_lender.HANDSHAKE_SECONDS = SECONDS
    site = DriverContext(Store.open((folder / "store").as_uri()), KEY, folder / "host", Pools({}))
    found = slot_lender.SlotLender(site, "tcp://127.0.0.1:0")
    announce(found.address)
    await until_told()
    await found.stop()


async def requests(_: Path) -> None:
    from orchestrator.run_requests.known_runs import KnownRuns

    from treadle.orchestrator.run_requests import driver_server

    driver_server.HANDSHAKE_SECONDS = SECONDS
    async with driver_server.DriverServer(KnownRuns(), KEY) as found:
        announce(found.address)
        await until_told()


SERVERS: dict[str, Callable[[Path], Coroutine[Any, Any, None]]] = {
    one.__name__: one
    for one in (coordinator, coordinator_tls, peers, member, lender, keeper, keeper_tls, webhooks, metrics, requests)
}


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    descriptors = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(SERVERS[sys.argv[1]](Path(folder)))


if __name__ == "__main__":
    main()
