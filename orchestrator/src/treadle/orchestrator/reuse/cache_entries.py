"""Results cached for later runs: an entry under each content key.

cache/<key>                       the length of a CacheEntry, the CacheEntry, the CachedResult; each sealed
runs/<run>/lent/<other>/<segment> the other run reads blocks of that segment; written before it does

A result holds references, not data. The blocks stay where the run that made them put them, and every run that takes the
result over reads them there (with `store:<run>` as their location). A reference authenticates its block by itself
(decision 0003), so that run's key is not needed. The entry is sealed under a key of the deployment. A run that takes a
result over seals it again under its own key.

A listing of entries reads only the beginning of each object, since a result has a reference for each partition.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import CorruptError, MissingError
from treadle.primitives.stores.store import Store

from ..run_store.run_files import LoopResult, Manifest
from ..scheduler.instructions import Summary

ROOT = "cache"
_ELSEWHERE = "store:"
_PREFIX = 4
"""Bytes of the prefix with the entry's length."""
_BEGINNING = 4096
"""Bytes that suffice for most entries."""


class CacheEntry(Struct, frozen=True):
    """The existence of a result, with the runs whose blocks it consists of."""

    key: str
    run: str
    """Folder of the run that made the result, for display."""
    made: float
    """Seconds since the epoch."""
    ttl: float
    """Seconds. Garbage collection uses this time; a reader has its own."""
    lent: dict[str, tuple[str, ...]]
    """Folder of a run -> its segments whose blocks the result consists of."""

    def age(self, now: float) -> float:
        return max(0.0, now - self.made)


class CachedResult(Struct, frozen=True):
    """The result of a node, in the form that every run can read."""

    manifests: tuple[Manifest, ...]
    """The manifest of a segment. For a loop: the manifests of the segments with its last state."""
    loop: LoopResult | None = None

    @property
    def summary(self) -> Summary:
        return self.loop.summary if self.loop is not None else self.manifests[0].summary


T = TypeVar("T", CacheEntry, CachedResult)


class Entries:
    """The cached results in one store."""

    def __init__(self, store: Store, key: bytes) -> None:
        """`key`: the deployment key."""
        self._store = store
        self._key = sealing.purpose_key(key, b"treadle cache")

    def find(self, key: str, ttl: float) -> CacheEntry | None:
        """A result that is not older than `ttl` seconds. Raises CorruptError for another deployment's result, and
        StoreError."""
        try:
            entry = self.read(key)
        except MissingError:
            return None
        return entry if entry.age(time.time()) <= ttl else None

    def take(self, key: str, ttl: float) -> tuple[CacheEntry, CachedResult] | None:
        """Like `find`, with the result itself."""
        name = f"{ROOT}/{key}"
        try:
            data = memoryview(self._store.get(name))
        except MissingError:
            return None
        end = _end(data[:_PREFIX])
        entry = self._decoded(CacheEntry, name, data[_PREFIX:end])
        return (entry, self._decoded(CachedResult, name, data[end:])) if entry.age(time.time()) <= ttl else None

    def read(self, key: str) -> CacheEntry:
        """The entry of a key, of any age. Does not read the result, which may have 100,000 blocks. Raises
        MissingError."""
        name = f"{ROOT}/{key}"
        data = self._store.get_range(name, 0, _BEGINNING)
        end = _end(data[:_PREFIX])
        if end > len(data) == _BEGINNING:
            data += self._store.get_range(name, _BEGINNING, end - _BEGINNING)
        return self._decoded(CacheEntry, name, memoryview(data)[_PREFIX:end])

    def keep(self, entry: CacheEntry, result: CachedResult) -> None:
        """Store an entry in place of an older one with its key."""
        name = f"{ROOT}/{entry.key}"
        sealed = self._sealed(name, entry)
        self._store.put(name, [len(sealed).to_bytes(_PREFIX, "big"), sealed, self._sealed(name, result)])

    def kept_keys(self) -> list[str]:
        """The keys of all results, expired ones included."""
        return [info.name.removeprefix(f"{ROOT}/") for info in self._store.list(ROOT)]

    def kept(self, unreadable: Callable[[CorruptError], None] = lambda _: None) -> Iterator[CacheEntry]:
        """Every entry, expired ones included. `unreadable` receives the error of an entry of another deployment."""
        for key in self.kept_keys():
            try:
                yield self.read(key)
            except MissingError:
                continue  # it has been removed
            except CorruptError as error:
                unreadable(error)

    def remove(self, keys: Iterable[str]) -> None:
        self._store.delete(f"{ROOT}/{key}" for key in keys)

    # -- borrowed blocks

    def borrow(self, entry: CacheEntry, borrower: str) -> bool:
        """Record that a run reads the blocks of an entry. False: the entry was removed, and its blocks may be too.

        Garbage collection removes the entry before it looks for borrowers, so at least one side sees the other.
        """
        top = borrower.partition("/")[0]  # a child run is removed together with its parent
        for lender, segments in entry.lent.items():
            for segment in segments if lender != borrower else ():
                self._store.put(f"runs/{lender}/lent/{top}/{segment}", b"")
        return self._store.head(f"{ROOT}/{entry.key}") is not None

    def _sealed(self, name: str, value: CacheEntry | CachedResult) -> bytes:
        return sealing.seal(self._key, _part(name, type(value)), msgspec.msgpack.encode(value))

    def _decoded(self, kind: type[T], name: str, data: memoryview) -> T:
        return decoded(kind, name, sealing.unseal(self._key, _part(name, kind), data))


_SEALED_AS: Mapping[type, str] = {CacheEntry: "Entry", CachedResult: "Result"}


def _part(name: str, kind: type[CacheEntry] | type[CachedResult]) -> str:
    """The sealed name of a CacheEntry or a CachedResult, so that neither can replace the other."""
    return f"{name} {_SEALED_AS[kind]}"


def _end(prefix: bytes | memoryview) -> int:
    """The offset of the entry's end."""
    return _PREFIX + int.from_bytes(prefix, "big")


def result_of(run: str, manifests: Iterable[Manifest], loop: LoopResult | None = None) -> CachedResult | None:
    """The cached result of a finished node. None: other runs cannot read one of its blocks."""
    kept = tuple(_kept(manifest, run) for manifest in manifests)
    blocks = (outcome.block for manifest in kept for outcome in manifest.outcomes)
    if not all(block is None or block.locations for block in blocks):
        return None
    return CachedResult(kept, replace(loop, origin=run) if loop is not None else None)


def entry_of(key: str, run: str, ttl: float, result: CachedResult, now: float) -> CacheEntry:
    """The entry of a result. `run`: the folder of the run that made it."""
    lent: dict[str, dict[str, None]] = defaultdict(dict)
    for manifest in result.manifests:
        for place in {place for one in manifest.outcomes if one.block for place in one.block.locations}:
            if place.startswith(_ELSEWHERE):
                lent[place.removeprefix(_ELSEWHERE)][manifest.segment] = None
    return CacheEntry(key, run, now, ttl, {lender: tuple(sorted(lent[lender])) for lender in sorted(lent)})


def _kept(manifest: Manifest, run: str) -> Manifest:
    outcomes = tuple(_lent(outcome, run) for outcome in manifest.outcomes)
    return replace(manifest, outcomes=outcomes, summary=replace(manifest.summary, read={}, spilled=0), origin=run)


def _lent(outcome: Outcome, run: str) -> Outcome:
    """The outcome for a run that takes it over, without resource use, since nothing ran there."""
    block = replace(outcome.block, locations=_readable(outcome.block, run)) if outcome.block else None
    rest = Outcome(outcome.partition, outcome.attempt, outcome.kind, outcome.rows, block, metrics=outcome.metrics)
    return replace(rest, counts=outcome.counts, values=outcome.values)


def _readable(block: BlockRef, run: str) -> tuple[str, ...]:
    """The block's permanent locations."""
    kept = [place for place in block.locations if place == "inline" or place.startswith(_ELSEWHERE)]
    return (*kept, f"{_ELSEWHERE}{run}") if "store" in block.locations else tuple(kept)


def lent_segments(entries: Iterable[CacheEntry]) -> dict[str, set[str]]:
    """Run -> segments whose blocks are kept for other runs."""
    found: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for run, segments in entry.lent.items():
            found[run].update(segments)
    return dict(found)
