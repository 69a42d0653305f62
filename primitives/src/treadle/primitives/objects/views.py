"""The views of a shard: a chain of sealed objects `<folder>/<shard>/views/<epoch>`, made with create-if-absent.

**Why no answer is lost.** The primary of epoch n + 1 has the whole state of epoch n, as only members with it propose,
and the chain takes one proposal. An answered call is at all members.

**Why no answer is old.** A backup that acknowledged at time t takes no part in the answers of a later view before t +
`lease`. The primary reads for 0.8 `lease` after it asked. After PacificA (Lin et al., MSR-TR-2008-25).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..errors import MissingError
from ..sealing import SealedStore
from ..stores.store import Store
from .messages import ShardView, host_of

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ShardView).decode


def newest_number(store: Store, folder: str) -> int:
    """Return the highest number that names an object of the folder; -1: none. Raises StoreError."""
    return max((int(info.name.rpartition("/")[2]) for info in store.list_folder(folder)), default=-1)


def is_abandoned(primary: bool | None, backups: Iterable[bool | None], *, kept: bool, waited: bool) -> bool:
    """Return whether a shard needs a view that its last members will not propose.

    The members live, have ended, or do not answer (None). A backup that has the state proposes the next view within two
    seconds; one that still waits for the state never does. A primary that does not answer here may answer others: it
    looks at the chain only when it is asked. The log stops it, where the state is `kept` in the store. `waited`: this
    has been so for a while.
    """
    if primary is None:
        return kept and waited
    return not primary and (waited or all(one is False for one in backups))


def spread(shard: int, view: ShardView) -> ShardView:
    """Return the view with the primary that spreads the shards over the hosts of its members; often the same view."""
    members = sorted(view.members, key=host_of)
    first = members[shard % len(members)]
    if first == view.primary or not all(map(host_of, members)):
        return view
    others = tuple(member for member in view.members if member != first)
    return ShardView(view.epoch + 1, first, others, view.incarnation)


class ViewChain:
    """The views of one shard. Objects are never deleted, so a keeper that slept cannot take a used epoch."""

    def __init__(self, store: Store, key: bytes, folder: str, shard: int) -> None:
        self._store, self._folder = store, f"{folder}/{shard}/views"
        self._sealed = SealedStore(store, key)

    def create(self, view: ShardView) -> bool:
        """Write the view unless its epoch is taken. Raises StoreError."""
        return self._sealed.create(f"{self._folder}/{view.epoch}", _encode(view))

    def newest(self, known: ShardView | None = None) -> ShardView:
        """Return the newest view: `known`, or a later one. Epoch 0: none. Raises StoreError, CorruptError."""
        view = known or self._start()
        while True:
            try:
                view = _decode(self._sealed.get(f"{self._folder}/{view.epoch + 1}"))
            except MissingError:
                return view

    def _start(self) -> ShardView:
        """Return the view of the highest number in the folder, so that a long chain is not read from its begin."""
        number = newest_number(self._store, self._folder)
        return _decode(self._sealed.get(f"{self._folder}/{number}")) if number >= 0 else ShardView()
