"""Objects that are too large for one request, created unless they exist.

The bytes go in parts to an object beside the target, and are then copied to its name within the store if that name is
free. Google and Azure copy this way natively; S3 needs an upload that copies and completes with `If-None-Match`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from .atomic_files import Buffer


class Copying(Protocol):
    """The methods that `create_in_parts` needs from a store."""

    def put(self, name: str, data: Iterator[Buffer], /) -> None:
        """Write an object, in parts as they come."""

    def copy(self, source: str, name: str, /) -> bool:
        """Copy `source` to `name` unless `name` exists; False: it exists."""

    def delete(self, names: Sequence[str], /) -> None:
        """Remove the objects that exist."""


def create_in_parts(store: Copying, name: str, data: Iterator[Buffer]) -> bool:
    """Create an object, as `Store.create` does. A creator that died leaves its bytes beside the object, as
    `.<name>.<nonce>`.

    Raises StoreError.
    """
    folder, slash, last = name.rpartition("/")
    beside = f"{folder}{slash}.{last}.{os.urandom(8).hex()}"
    store.put(beside, data)
    try:
        return store.copy(beside, name)
    finally:
        store.delete([beside])
