"""The log of a shard with durability `store`: a chain of sealed objects, made with create-if-absent.

    <folder>/<shard>/log/<n>          entries of one epoch; the first object of an epoch has none: it is the fence
    <folder>/<shard>/snapshots/<n>    the state after log object n

A keeper reads the log to its end and appends a fence. The keeper of an earlier epoch finds the fence at its next number
and stops. Objects that a snapshot covers are deleted, but not fences: otherwise an earlier keeper that slept could
write at a number that is free again.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..errors import MissingError, TreadleError
from ..sealing import SealedStore
from ..stores.store import Store
from .messages import Entry
from .state import State
from .views import newest_number

_decode_entry = msgspec.msgpack.Decoder(Entry).decode


class LogRecord(Struct, frozen=True, array_like=True):
    """An object of the log."""

    epoch: int
    keeper: str
    entries: tuple[bytes, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LogRecord).decode


class LogFenced(TreadleError):
    """Another keeper has appended a later epoch: this keeper must stop."""


class ShardLog:
    """The log of one shard, as one keeper in one epoch sees it. Every method raises StoreError."""

    def __init__(self, store: Store, key: bytes, folder: str, shard: int, keeper: str, epoch: int) -> None:
        self._store, self._folder, self._sealed = store, f"{folder}/{shard}", SealedStore(store, key)
        self._keeper, self._epoch = keeper, epoch
        self._next = 0
        """The number of the next object of the log."""
        self._kept = 0
        """The first object that may have to be deleted."""
        self._fences: set[int] = set()

    def load(self, incarnation: int) -> State:
        """Return the state of the log, after the fence was appended. Raises Fenced."""
        while True:
            covered = self._newest_snapshot()
            try:
                state = self._read(covered, incarnation)
            except MissingError:
                continue  # deleted meanwhile: there is a newer snapshot
            if self._newest_snapshot() == covered:  # otherwise the end may be a gap of deleted objects
                return state

    def _read(self, covered: int, incarnation: int) -> State:
        state = State(incarnation)
        if covered >= 0:
            state = State.restored(bytes(self._sealed.get(f"{self._folder}/snapshots/{covered}")))
        self._next = self._kept = covered + 1
        while not self._fence(state):
            pass
        return state

    def append(self, entries: tuple[bytes, ...]) -> None:
        """Append entries; without entries, check that no other keeper has appended. Raises Fenced."""
        record = LogRecord(self._epoch, self._keeper, entries)
        if not entries:
            if self._store.head(self._log(self._next)) is not None:
                self._refuse()
            return
        name = self._log(self._next)
        if not self._sealed.create(name, _encode(record)) and _decode(self._sealed.get(name)) != record:
            self._refuse()  # equal: our own write, whose answer was lost
        self._next += 1

    def snapshot(self, state: bytes) -> None:
        """Write the state after all appended objects, and delete the objects that it covers."""
        covered = self._next - 1
        before = self._newest_snapshot()
        self._sealed.create(f"{self._folder}/snapshots/{covered}", state)
        self._store.delete(self._log(n) for n in range(self._kept, self._next) if n not in self._fences)
        if 0 <= before < covered:
            self._store.delete([f"{self._folder}/snapshots/{before}"])
        self._kept = self._next

    def _log(self, number: int) -> str:
        return f"{self._folder}/log/{number}"

    def _newest_snapshot(self) -> int:
        return newest_number(self._store, f"{self._folder}/snapshots")

    def _fence(self, state: State) -> bool:
        """Append the fence at the next number. False: there is an object, which has been applied to the state."""
        name, fence = self._log(self._next), LogRecord(self._epoch, self._keeper)
        if self._sealed.create(name, _encode(fence)):
            return self._passed(fence)
        record = _decode(self._sealed.get(name))
        if record.epoch > self._epoch or (record.epoch == self._epoch and record != fence):
            self._refuse()
        for entry in record.entries:
            state.apply(_decode_entry(entry))
            state.answers.clear()
        self._passed(record)
        return record == fence

    def _passed(self, record: LogRecord) -> bool:
        if not record.entries:
            self._fences.add(self._next)
        self._next += 1
        return True

    def _refuse(self) -> None:
        raise LogFenced(f"another keeper continues {self._folder}", "This keeper has stopped serving it.")
