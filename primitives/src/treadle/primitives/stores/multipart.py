"""Objects that are too large for one request, created if there is none.

The bytes go in parts to an object beside it, and are copied to its name within the store, if there is nothing. Google
and Azure copy so by themselves, S3 by an upload that copies and is completed with `If-None-Match`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from .atomic_files import Buffer


class Copying(Protocol):
    """What a store must be able to do."""

    def put(self, name: str, data: Iterator[Buffer], /) -> None:
        """Write an object, in parts as they come."""

    def copy(self, source: str, name: str, /) -> bool:
        """Give `name` the bytes of `source`, unless there is one; False: there was one already."""

    def delete(self, names: Sequence[str], /) -> None:
        """Remove what there is of them."""


def create_in_parts(store: Copying, name: str, data: Iterator[Buffer]) -> bool:
    """As `Store.create`. A creator that died leaves its bytes beside the object, as `.<name>.<nonce>`.

    Raises StoreError.
    """
    folder, slash, last = name.rpartition("/")
    beside = f"{folder}{slash}.{last}.{os.urandom(8).hex()}"
    store.put(beside, data)
    try:
        return store.copy(beside, name)
    finally:
        store.delete([beside])
