"""Serves a member's blocks to other members over TCP; they find it through the store.

If the member cannot be dialled, the server is only for its own worker, which finds other members' blocks there
(`Gateway`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from treadle.primitives.channels.gang import CHANNELS
from treadle.primitives.errors import CorruptError, MissingError, StoreError
from treadle.primitives.peers import HostDirectory, PeerClient, PeerServer, announce
from treadle.primitives.peers.gateway import Gateway, Membership
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.wire import Address, Identity, NotAuthentic, WireError, identity_of, is_loopback

from ..functions.payload import Blockset

_PULL_SECONDS = 60.0
"""Time limit for pulling one block from a leaving member."""


class Shelf:
    """Blocking; one thread at a time may use it."""

    def __init__(
        self, root: Path, run_key: Callable[[str], bytes], local_host: str, identity: str, membership: Membership
    ) -> None:
        """Serve at `local_host`, without TLS on loopback only; empty: other members cannot dial this one.

        `identity`: PEM of a private key and its certificate. `membership`: connects to members that cannot be dialled.
        Raises UsageError, WireError.
        """
        self._folder = HostFolder(root)
        self.host_id = self._folder.host_id
        self._run_key = run_key
        self._announced: set[tuple[str, str]] = set()
        tls = identity_of(identity) if identity else None
        self.gateway = Gateway(self._folder, run_key, membership._replace(tls=tls))
        try:
            self._server = self._serve(local_host or "127.0.0.1", tls)
        except BaseException:
            self.gateway.close()
            raise
        self.address = self._server.address if local_host else ""

    def _serve(self, host: str, tls: Identity | None) -> PeerServer:
        tls = None if is_loopback(host) else tls
        address = Address("tls" if tls else "tcp", host, 0)
        return PeerServer(self._folder, self._run_key, str(address), tls, forward=self.gateway.forward)

    def announce(self, run: str, store: Store, host: str = "") -> None:
        """Announce, once, the location of this member's blocks; `host`: for blocks taken over from another member.

        Raises StoreError.
        """
        key = (run, host or self.host_id)
        if key not in self._announced:
            self.gateway.know(run, store)
            about = (self.address, self.gateway.name, self._server.address)
            announce(store, run, self._run_key(run), key[1], *about)
            self._announced.add(key)

    def drop_channels(self) -> None:
        """Remove the blocks of the channels of earlier gangs. Raises StoreError."""
        for run in self._folder.runs():
            self._folder.delete_folder(f"{run_folder(run)}/{CHANNELS}")

    def adopt(self, blocks: Blockset) -> None:
        """Pull these blocks as far as possible, and serve them from now on. Blocks that cannot be pulled are recomputed
        elsewhere."""
        store, key = Store.open(blocks.store), self._run_key(blocks.run)
        client = PeerClient(blocks.run, key)
        with contextlib.closing(client), contextlib.suppress(StoreError):
            self.announce(blocks.run, store)
            directory = HostDirectory(store, blocks.run, key, self.host_id)
            for address in directory.resolve(blocks.hosts[-1]) or ():
                with contextlib.suppress(WireError, NotAuthentic, OSError):  # OSError: no room on the disk
                    self._pull(client, address, blocks)
                    break
            for host in blocks.hosts:
                self.announce(blocks.run, store, host)

    def _pull(self, client: PeerClient, address: str, blocks: Blockset) -> None:
        for name, size in blocks.blocks:
            with contextlib.suppress(MissingError, CorruptError):
                client.fetch_to_host(address, name, size, self._folder, time.monotonic() + _PULL_SECONDS)

    def close(self) -> None:
        """Stop serving, and end requests that wait for other members."""
        self.gateway.close()
        self._server.close()
