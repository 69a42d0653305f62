"""Values that are too large for calls: files beside the key of the keepers, or sealed objects in the store of a run."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from ..sealing import SealedStore
from .client_session import RUN, Access

LARGE = 64 << 10
"""Bytes above which a value is kept apart."""
Packed = bytes | str
"""A value, or the name of the file or object that holds it."""


def packed(of: Access, data: bytes, least: int = LARGE) -> Packed:
    """Return the bytes, or above `least` the name under which all callers of these keepers find them.

    Raises StoreError, OSError.
    """
    if len(data) <= least:
        return data
    _, key, folder, _ = of.place
    if key.startswith(RUN):
        name = f"{folder}/large/{secrets.token_hex(16)}"
        SealedStore(of.store, of.key).put(name, data)
        return name
    beside = Path(key).parent / "large"
    beside.mkdir(exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=beside)
    with open(descriptor, "wb") as file:
        file.write(data)
    return name


def unpacked(of: Access, item: Packed, *, keep: bool = False) -> bytes:
    """Return the bytes, and remove their file or object unless others will read it. Raises the errors of both."""
    if isinstance(item, bytes):
        return item
    here = os.path.isabs(item)
    data = Path(item).read_bytes() if here else bytes(SealedStore(of.store, of.key).get(item))
    if not keep:
        remove(of, item)
    return data


def remove(of: Access, item: Packed) -> None:
    """Remove the file or object of a value, if it has one."""
    if isinstance(item, bytes):
        return
    if not os.path.isabs(item):
        of.store.delete([item])
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(item)
