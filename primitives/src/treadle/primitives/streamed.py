"""Objects that are too large for one request, created if there is none.

The bytes go in parts to an object beside it, and are copied to its name within the store, if there is nothing. Google
and Azure copy so by themselves, S3 by an upload that copies and is completed with `If-None-Match`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .whole_files import Buffer

if TYPE_CHECKING:
    from .store import ObjectStore


def create_in_parts(store: ObjectStore, name: str, data: Iterator[Buffer]) -> bool:
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
