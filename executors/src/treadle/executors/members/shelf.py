"""The blocks a member holds, as the other members see them: served over TCP, found through the store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from treadle.primitives.errors import CorruptError, MissingError, StoreError
from treadle.primitives.host import HostFolder
from treadle.primitives.peers import PeerClient, PeerServer, announce, resolve
from treadle.primitives.store import Store
from treadle.primitives.wire import Identity, NotAuthentic, WireError, is_loopback

from ..functions.payload import Blockset

_PULL_SECONDS = 60.0
"""For one block of a member that leaves."""


class Shelf:
    """Blocking; for one thread at a time."""

    def __init__(self, root: Path, run_key: Callable[[str], bytes], local_host: str, identity: str) -> None:
        """Serve at `local_host`, in clear on loopback only. `identity`: PEM of a private key and its certificate.

        Raises UsageError, WireError.
        """
        self._folder = HostFolder(root)
        self.host_id = self._folder.host_id
        self._run_key = run_key
        self._announced: set[tuple[str, str]] = set()
        tls = None if is_loopback(local_host) else _kept(identity, root)
        host = f"[{local_host}]" if ":" in local_host else local_host
        address = f"{'tls' if tls else 'tcp'}://{host}:0"
        self._server = PeerServer(self._folder, run_key, address, tls)
        self.address = self._server.address

    def announce(self, run: str, store: Store, host: str = "") -> None:
        """Say, once, where the blocks of this member are; `host`: those that it took over from another one.

        Raises StoreError.
        """
        key = (run, host or self.host_id)
        if key not in self._announced:
            announce(store, run, self._run_key(run), key[1], self.address)
            self._announced.add(key)

    def adopt(self, blocks: Blockset) -> None:
        """Pull what there is of these blocks, and serve it from now on. What cannot be had is made again by others."""
        store, key = Store.open(blocks.store), self._run_key(blocks.run)
        client = PeerClient(blocks.run, key)
        with contextlib.closing(client), contextlib.suppress(WireError, NotAuthentic, StoreError):
            address = resolve(store, blocks.run, key, blocks.hosts[-1])
            if address is not None:
                self._pull(client, address, blocks)
            for host in blocks.hosts:
                self.announce(blocks.run, store, host)

    def _pull(self, client: PeerClient, address: str, blocks: Blockset) -> None:
        for name, size in blocks.blocks:
            with contextlib.suppress(MissingError, CorruptError):
                client.fetch_to_host(address, name, size, self._folder, time.monotonic() + _PULL_SECONDS)

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.close()


def _kept(identity: str, root: Path) -> Identity:
    """As the server wants it: a private file, and the digest of the certificate."""
    path = root / "tls.pem"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(identity)
    certificate = ssl.PEM_cert_to_DER_cert(identity[identity.index("-----BEGIN CERTIFICATE-----") :])
    return Identity(path, hashlib.sha256(certificate).digest())
