"""What a member is asked for and cannot send: left in the run's store, where whoever asked takes it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from ..errors import StoreError
from ..run_paths import run_folder
from ..sealing import SealedStore
from ..stores.atomic_files import check_name
from ..stores.store import Store


def leave(store: Store, run: str, key: bytes, data: Sequence[bytes]) -> str:
    """Put the bytes into an object, sealed with the run's key; what to call it. Raises StoreError."""
    token = secrets.token_hex(16)
    SealedStore(store, key).put(_name(run, token), b"".join(data))
    return token


def take(store: Store, run: str, key: bytes, token: str) -> memoryview:
    """The bytes; the object is removed. Raises StoreError, MissingError, CorruptError, and UsageError for no token."""
    name = _name(run, token)
    data = SealedStore(store, key).get(name)
    with contextlib.suppress(StoreError):  # it goes with the run then
        store.delete([name])
    return data


def _name(run: str, token: str) -> str:
    """It goes with the blocks of the run at last. Nobody can name anything else."""
    return check_name(f"runs/{run_folder(run)}/blocks/_passed/{token}")
