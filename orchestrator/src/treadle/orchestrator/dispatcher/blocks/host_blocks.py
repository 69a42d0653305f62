"""The driver's side of direct exchange between hosts: it serves its host's blocks and publishes its address to runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from treadle.primitives import sealing
from treadle.primitives.encoding.references import Slice
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from ...planner.transport import Figures

LATELY = 3600.0
"""Seconds for which `lost_lately` counts the loss of a host."""


class Hosts:
    """This host, as one of several that share a run. Blocking; safe to call from several threads."""

    def __init__(self, store: Store, key: bytes, folder: HostFolder, address: str) -> None:
        """Serve the blocks of `folder` at `address`, and announce it to every run that already has blocks here.

        Raises UsageError for an address that cannot be listened at, StoreError.
        """
        from treadle.primitives.peers import PeerServer

        self._store, self._key, self._folder = store, key, folder
        self._lost: dict[str, float] = {}
        self._server = PeerServer(folder, self._run_key, address)
        self.host_id = folder.host_id
        self.figures: Figures | None = None
        for run in folder.runs():
            self.announce(run)

    @property
    def address(self) -> str:
        return self._server.address

    def measure(self) -> None:
        """Measure the cost of the store and of the link from here."""
        from .latency_probe import measure

        self.figures = measure(self._store, self._folder, self._key, self.address)

    def announce(self, run: str) -> None:
        """Publish this host's address to the other hosts of a run. Call it again after a restart."""
        from treadle.primitives.peers import announce

        announce(self._store, run, self._run_key(run), self._folder.host_id, self.address)

    def lost(self, host: str) -> None:
        """Count the loss of a host with its blocks."""
        if host != self._folder.host_id:
            self._lost[host] = time.monotonic()

    def took(self, names: Collection[str], slices: Iterable[Slice]) -> None:
        """Count the loss of the hosts of lost blocks. `names`: the lost blocks. `slices`: the slices that a partition
        reads."""
        for place in {place for one in slices if one.name in names for place in one.locations}:
            if place.startswith("host:"):
                self.lost(place.removeprefix("host:"))

    def lost_lately(self) -> int:
        since = time.monotonic() - LATELY
        return sum(when > since for when in list(self._lost.values()))  # another thread may add to it

    def close(self) -> None:
        self._server.close()

    def _run_key(self, run: str) -> bytes:
        return sealing.run_key(self._key, run)
