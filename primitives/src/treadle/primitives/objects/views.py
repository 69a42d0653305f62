"""The views of a shard: a chain of sealed objects `<folder>/<shard>/views/<epoch>`, made with create-if-absent."""

from __future__ import annotations

import msgspec

from ..errors import MissingError
from ..sealing import SealedStore
from ..stores.store import Store
from .messages import ShardView

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ShardView).decode


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
        numbers = [int(info.name.rpartition("/")[2]) for info in self._store.list_folder(self._folder)]
        return _decode(self._sealed.get(f"{self._folder}/{max(numbers)}")) if numbers else ShardView()
