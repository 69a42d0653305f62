"""Objects that are too large for one request, created if there is none: stores offer this for one request only.

The bytes go in parts to an object beside it. Then a claim is created that names them, and as long as there is no
object they are copied to its name, within the store, by whoever meets the claim: its maker, or any other creator, so
that nobody waits for one who has died (helping: Herlihy, TOPLAS 13, 1991). An object is there before its claim goes,
so only the first claim is ever made while there is none: no bytes take the place of others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import MissingError
from .whole_files import Buffer

if TYPE_CHECKING:
    from .store import ObjectStore


def create_in_parts(store: ObjectStore, name: str, data: Iterator[Buffer]) -> bool:
    """As `Store.create`. What is beside the object begins with a dot, and is gone on return.

    A creator that died leaves its bytes there, as `.<name>.<nonce>`, until another one finds its claim. Raises
    StoreError.
    """
    folder, slash, last = name.rpartition("/")
    beside = f"{folder}{slash}.{last}."
    ours, claim = f"{beside}{os.urandom(8).hex()}", f"{beside}claim"
    store.put(ours, data)
    made = False
    while not made:
        source = ours if store.create(claim, ours.encode()) else _content(store, claim)
        if store.head(name) is not None:
            break
        if source:
            _copy(store, source, name)
            store.delete([claim, source])
            made = source == ours
    store.delete([claim, ours])
    return made


def _content(store: ObjectStore, claim: str) -> str:
    try:
        return store.get(claim).decode()
    except MissingError:
        return ""


def _copy(store: ObjectStore, source: str, name: str) -> None:
    try:
        store.copy(source, name)
    except MissingError:
        if store.head(name) is None:  # otherwise somebody was faster
            raise
