"""Answers that a member cannot send directly: left in the run's store, where the requesting member takes them."""

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
    """Put the bytes into an object sealed with the run's key, and return its token. Raises StoreError."""
    token = secrets.token_hex(16)
    SealedStore(store, key).put(_name(run, token), b"".join(data))
    return token


def take(store: Store, run: str, key: bytes, token: str) -> memoryview:
    """Return the bytes and remove the object. Raises StoreError, MissingError, CorruptError, and UsageError for an
    invalid token.
    """
    name = _name(run, token)
    data = SealedStore(store, key).get(name)
    remove(store, run, token)
    return data


def remove(store: Store, run: str, token: str) -> None:
    """Remove the object; if that fails, it is removed with the run. Raises UsageError for an invalid token."""
    with contextlib.suppress(StoreError):
        store.delete([_name(run, token)])


def _name(run: str, token: str) -> str:
    """Removed with the blocks of the run at the latest. A token cannot name any other object."""
    return check_name(f"runs/{run_folder(run)}/blocks/_passed/{token}")
