"""Two hosts in one process with separate folders. One of them is served."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from treadle.primitives.peers import PeerClient, PeerServer
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.wire import Identity

RUN, KEY = "run-1", bytes(range(32))
OTHER, OTHERS_KEY = "run-2", bytes(32)
KEYS = {RUN: KEY, OTHER: OTHERS_KEY}


def soon() -> float:
    """A deadline for calls that succeed on the slowest machine."""
    return time.monotonic() + 60


def at_once() -> float:
    """A deadline for calls that fail without an answer."""
    return time.monotonic() + 0.2


def content(size: int, seed: int = 0) -> bytes:
    """Bytes that depend on their position."""
    return (
        b"".join((seed * 7919 + i).to_bytes(4, "big") for i in range(min(size // 4 + 1, 20_000))) * (size // 80_000 + 1)
    )[:size]


@contextlib.contextmanager
def served(
    folder: Path, tls: Identity | None = None, connections: int = 256
) -> Iterator[tuple[HostFolder, PeerServer]]:
    """A host folder and its server."""
    host = HostFolder(folder / "there" / "host")
    with PeerServer(host, KEYS.get, f"{'tls' if tls else 'tcp'}://127.0.0.1:0", tls, connections=connections) as server:
        yield host, server


@contextlib.contextmanager
def reader(run: str = RUN, key: bytes = KEY) -> Iterator[PeerClient]:
    client = PeerClient(run, key)
    try:
        yield client
    finally:
        client.close()
