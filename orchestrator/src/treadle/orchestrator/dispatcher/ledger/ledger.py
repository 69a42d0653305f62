"""The ledger: the committed partitions, in one atomic chain of records.

A ledger is a chain of numbered objects. Each is created with create-if-absent and sealed with the run's key. The number
makes the order total: if two writers want the same number, one wins, and the other reads the winner's object.

A writer opens an **epoch** by appending an epoch record; the writer of a new chain writes it with its first records.
A writer that finds a higher epoch at its next number is fenced and stops; records that it had not appended by then
were never committed. So two dispatchers on one segment are harmless (a stalled driver, a late heartbeat), on any store
with create-if-absent, and no process that could stall holds a lock.

The idea is the optimistic log of Delta Lake (Armbrust et al., VLDB 2020). docs/decisions/0004 gives the reasons against
one file.

Records are grouped: `append` buffers, `flush` writes one object. A file store syncs an object before it links it, so a
record survives a power loss once `flush` has returned.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.executors.program import Outcome
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import MissingError, TreadleError
from treadle.primitives.stores.store import Store

from ...scheduler.instructions import Data


class Epoch(Struct, frozen=True, tag="epoch"):
    """A writer takes over. Every earlier writer is fenced."""

    epoch: int
    writer: str
    resumption: int
    """The number of resumptions by a user. Each gives failed partitions a fresh budget of attempts."""
    time: float


class Expected(Struct, frozen=True, tag="expected"):
    """The segment opened with this number of partitions."""

    segment: str
    partitions: int
    time: float


class Started(Struct, frozen=True, tag="started", gc=False):
    """Attempts began. It is on disk before they run only for segments that need it (see SegmentRun.ready)."""

    segment: str
    attempts: dict[int, int]
    """partition -> attempt."""


class Committed(Struct, frozen=True, tag="committed", gc=False):
    """A partition is done, for ever, unless its block is lost."""

    segment: str
    outcome: Outcome


class Copied(Struct, frozen=True, tag="copied", gc=False):
    """The store has the blocks of these commits too."""

    segment: str
    partitions: tuple[int, ...]
    digests: tuple[tuple[bytes, ...], ...] = ()
    """For each partition, the digests of its block's parts. They are made with the copy."""

    @classmethod
    def of(cls, segment: str, blocks: Mapping[int, BlockRef]) -> Copied:
        """`blocks`: of each partition, after its copy."""
        return cls(segment, tuple(blocks), tuple(tuple(part.digest for part in one.parts) for one in blocks.values()))

    def by_partition(self) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        """Each partition, with the digests of its block's parts; none if the parts have theirs."""
        return zip(self.partitions, self.digests or ((),) * len(self.partitions), strict=True)


CANCELLED = "cancelled"
"""The failure of a call that was withdrawn before it began."""


class Failed(Struct, frozen=True, tag="failed", gc=False):
    segment: str
    partition: int
    attempt: int
    failure: str
    message: str
    final: bool
    spent: bool
    """True: the attempt counts against maximumAttempts."""


class Lost(Struct, frozen=True, tag="lost"):
    """Commits taken back: their blocks have no readable location."""

    segment: str
    partitions: tuple[int, ...]
    anew: bool = False
    """True: a user has the segment run again, so the attempts that follow are not a repair."""


class GangCheckpoint(Struct, frozen=True, tag="gang checkpoint"):
    """The states of all members of a gang, by rank. It counts until a later one of the segment, or its commit."""

    segment: str
    number: int
    states: tuple[BlockRef, ...]
    """Empty: this checkpoint is damaged, and the one before it counts again."""


class Closed(Struct, frozen=True, tag="closed"):
    """The segment's committed set is final. Used within a loop; elsewhere the manifest records it."""

    segment: str


class Iterated(Struct, frozen=True, tag="iterated"):
    """An iteration of a loop is over, with the state from which the next one starts."""

    loop: str
    iteration: int
    scalars: dict[str, Any]
    data: dict[str, Data]
    finished: bool


Record = Epoch | Expected | Started | Committed | Copied | Failed | Lost | GangCheckpoint | Closed | Iterated


class ChainEntry(Struct, frozen=True, array_like=True, gc=False):
    """One object of the chain."""

    epoch: int
    writer: str
    records: tuple[Record, ...]


class Fenced(TreadleError):
    """Another dispatcher has taken over this ledger. This one must stop and commit nothing more."""

    def __init__(self, prefix: str, epoch: int) -> None:
        super().__init__(f"{prefix}: epoch {epoch} has taken over", "nothing to do: the newer dispatcher carries on")


_encode = msgspec.msgpack.Encoder().encode


def read(store: Store, prefix: str, key: bytes) -> list[Record]:
    """Every record of the chain, in order. For readers that do not write."""
    return read_from(store, prefix, key, 0)[0]


def read_from(store: Store, prefix: str, key: bytes, number: int) -> tuple[list[Record], int]:
    """The records of the objects from `number` on, and the number of the next object.

    Only the count of the listed objects is used. The chain has no gaps, so their numbers follow from it, although a
    listing may lag behind or overlap with writes.
    """
    stop = number + sum(int(info.name.rsplit("/", 1)[1]) >= number for info in store.list(f"{prefix}/ledger/"))
    return [record for one in range(number, stop) for record in _read_one(store, prefix, key, one).records], stop


class LedgerReader:
    """Reads a chain as it grows. Methods block; use from one thread at a time."""

    def __init__(self, store: Store, prefix: str, key: bytes) -> None:
        self._store, self._prefix, self._key = store, prefix, key
        self._number = 0
        self._found: list[Record] = []

    @property
    def folder(self) -> Path | None:
        """The folder of the chain, if it is on this host."""
        return self._store.path(_name(self._prefix, 0).rpartition("/")[0])

    def read(self) -> list[Record]:
        """The records since the last call.

        Raises StoreError, CorruptError. The next call then also returns the records read before the error.
        """
        path = self._store.path(_name(self._prefix, self._number))
        if path is not None and not path.exists():  # a cheap test, on a store of this host
            return []
        with suppress(MissingError):
            while True:
                self._found += _read_one(self._store, self._prefix, self._key, self._number).records
                self._number += 1
        found, self._found = self._found, []
        return found


class Ledger:
    """A chain that this process writes. One thread at a time may `flush` while another appends."""

    def __init__(self, store: Store, prefix: str, key: bytes, resumption: int = 1, *, is_new: bool = False) -> None:
        """`is_new`: the chain is probably empty: the store is not asked for records, and if it has some, the first
        `flush` raises Fenced."""
        self._store, self._prefix, self._key = store, prefix, key
        self._objects = sealing.SealedStore(store, key)
        self.writer = secrets.token_hex(8)
        """A name that no other writer of the chain has."""
        self._number = 0
        self._pending: list[Record] = []
        self._swap = threading.Lock()
        self.epoch = 0
        self.records = self._begin(resumption) if is_new else self._take_over(resumption)

    def append(self, *records: Record) -> None:
        """Buffer records. They count after the next `flush`."""
        with self._swap:
            self._pending.extend(records)

    @property
    def dirty(self) -> bool:
        return bool(self._pending)

    def flush(self) -> None:
        """Write the buffered records as one object. Raises Fenced after a newer epoch, and StoreError when it cannot
        write."""
        with self._swap:
            batch, self._pending = self._pending, []
        try:
            self._write(batch)
        except BaseException:
            with self._swap:
                self._pending = batch + self._pending
            raise
        self._objects.prepare(_name(self._prefix, self._number), self._number)

    def _begin(self, resumption: int) -> list[Record]:
        epoch = Epoch(1, self.writer, resumption, time.time())
        self.epoch = epoch.epoch
        self.append(epoch)
        return [epoch]

    def _take_over(self, resumption: int) -> list[Record]:
        records: list[Record] = []
        while True:
            more, self._number = read_from(self._store, self._prefix, self._key, self._number)
            records += more
            known = max((record.epoch for record in records if isinstance(record, Epoch)), default=0)
            epoch = Epoch(known + 1, self.writer, resumption, time.time())
            if self._create(ChainEntry(epoch.epoch, self.writer, (epoch,))):
                self.epoch = epoch.epoch
                self._number += 1
                return [*records, epoch]

    def _write(self, batch: list[Record]) -> None:
        """Write a batch and empty it. After an error, the records still in it are taken as not written."""
        while batch:
            written = len(batch)
            if not self._create(ChainEntry(self.epoch, self.writer, tuple(batch))):
                written = self._written_before(self._number)
            self._number += 1
            del batch[:written]

    def _written_before(self, number: int) -> int:
        """The number of records in an object of this writer whose answer got lost. Raises Fenced for another writer's
        object."""
        winner = _read_one(self._store, self._prefix, self._key, number)
        if winner.writer != self.writer:
            raise Fenced(self._prefix, winner.epoch)
        return len(winner.records)

    def _create(self, entry: ChainEntry) -> bool:
        return self._objects.create(_name(self._prefix, self._number), _encode(entry))


def _name(prefix: str, number: int) -> str:
    return f"{prefix}/ledger/{number:08d}"


def _read_one(store: Store, prefix: str, key: bytes, number: int) -> ChainEntry:
    name = _name(prefix, number)
    return decoded(ChainEntry, name, sealing.SealedStore(store, key).get(name))
