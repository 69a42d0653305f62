"""What a member is asked for and cannot send: left in the run's store, where whoever asked takes it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from ..errors import StoreError
from ..run_names import run_folder
from ..store import Store
from ..trust import SealedStore


def leave(store: Store, run: str, key: bytes, data: Sequence[bytes]) -> str:
    """Put the bytes into an object, sealed with the run's key; its name. Raises StoreError."""
    name = f"runs/{run_folder(run)}/blocks/_passed/{secrets.token_hex(16)}"  # goes with the blocks of the run at last
    SealedStore(store, key).put(name, b"".join(data))
    return name


def take(store: Store, key: bytes, name: str) -> memoryview:
    """The bytes; the object is removed. Raises StoreError, MissingError and CorruptError."""
    data = SealedStore(store, key).get(name)
    with contextlib.suppress(StoreError):  # it goes with the run then
        store.delete([name])
    return data
