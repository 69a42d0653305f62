"""The cost of one request to the store, and to a peer, from this host. Measured once, when a driver starts."""

from __future__ import annotations

import os
import secrets
import statistics
import time
from collections.abc import Callable

from treadle.primitives import sealing
from treadle.primitives.peers import PeerClient
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from ...planner.transport import Figures

_SMALL, _LARGE = 1 << 10, 4 << 20
_TIMES = 3
_PATIENCE = 10.0
"""Seconds for one pull."""


def measure(store: Store, folder: HostFolder, key: bytes, address: str) -> Figures:
    """Put and get through the store, pull from the host's own server. Raises StoreError and WireError."""
    run = f"probe-{secrets.token_hex(8)}"
    small, large = os.urandom(_SMALL), os.urandom(_LARGE)
    client = PeerClient(run, sealing.run_key(key, run))

    def stored(name: str, data: bytes) -> None:
        store.put(f"runs/{run}/{name}", data)
        store.get(f"runs/{run}/{name}")

    def pulled(name: str, data: bytes) -> None:
        client.fetch(address, [(name, 0, len(data))], time.monotonic() + _PATIENCE)

    try:
        folder.put(f"{run}/small", [small])
        folder.put(f"{run}/large", [large])
        put, link = _seconds(lambda: stored("small", small)), _seconds(lambda: pulled("small", small))
        put_large, link_large = _seconds(lambda: stored("large", large)), _seconds(lambda: pulled("large", large))
    finally:
        client.close()
        folder.delete_run(run)
        store.delete_prefix(f"runs/{run}")
    return Figures(put, _rate(put_large - put), link, _rate(link_large - link))


def _rate(seconds: float) -> float:
    return _LARGE / max(seconds, 1e-6)


def _seconds(work: Callable[[], None]) -> float:
    taken = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
