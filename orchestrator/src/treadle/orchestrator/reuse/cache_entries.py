"""Results kept for later runs: an entry under each content key.

cache/<key>                       the length of an Entry, the Entry, and the Result; each sealed
runs/<run>/lent/<other>/<segment> the other run reads blocks of that segment; there before it does

A result holds references, not data: the blocks stay where the run that made them put them, and whoever takes a result
over reads them there (`store:<run>` as their location). A reference authenticates its block by itself (decision 0003),
so no key of that run is needed; the entry is sealed under a key of the deployment, and the run that takes it over seals
what it takes anew under its own. Who only wants to know what there is reads the beginning: a result has a reference for
each partition.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import MissingError
from treadle.primitives.stores.store import Store

from ..run_store.run_files import LoopResult, Manifest
from ..scheduler.instructions import Summary

ROOT = "cache"
_ELSEWHERE = "store:"
_PREFIX = 4
"""Bytes that tell the length of the entry."""
_BEGINNING = 4096
"""Bytes that hold most entries."""


class Entry(Struct, frozen=True):
    """That there is a result, and whose blocks it consists of."""

    key: str
    run: str
    """Folder of the run that made it, for people."""
    made: float
    """Seconds since the epoch."""
    ttl: float
    """Seconds; whoever takes it goes by a time of its own, and gc by this one."""
    lent: dict[str, tuple[str, ...]]
    """Folder of a run -> segments of it, whose blocks the result consists of."""

    def age(self, now: float) -> float:
        return max(0.0, now - self.made)


class Result(Struct, frozen=True):
    """What a node came to, as every run can read it."""

    manifests: tuple[Manifest, ...]
    """Of a segment its own; of a loop those of the segments that its last state is in."""
    loop: LoopResult | None = None

    @property
    def summary(self) -> Summary:
        return self.loop.summary if self.loop is not None else self.manifests[0].summary


T = TypeVar("T", Entry, Result)


class Entries:
    """The results kept in one store."""

    def __init__(self, store: Store, key: bytes) -> None:
        """`key` is the deployment's."""
        self._store = store
        self._key = sealing.purpose_key(key, b"treadle cache")

    def find(self, key: str, ttl: float) -> Entry | None:
        """A result that is not older than `ttl` seconds. Raises CorruptError for one of somebody else, StoreError."""
        try:
            entry = self.read(key)
        except MissingError:
            return None
        return entry if entry.age(time.time()) <= ttl else None

    def take(self, key: str, ttl: float) -> tuple[Entry, Result] | None:
        """As `find`, with the result itself."""
        name = f"{ROOT}/{key}"
        try:
            data = memoryview(self._store.get(name))
        except MissingError:
            return None
        end = _end(data[:_PREFIX])
        entry = self._decoded(Entry, name, data[_PREFIX:end])
        return (entry, self._decoded(Result, name, data[end:])) if entry.age(time.time()) <= ttl else None

    def read(self, key: str) -> Entry:
        """What is kept under a key, of whatever age; a result of 100,000 blocks is not read. Raises MissingError."""
        name = f"{ROOT}/{key}"
        data = self._store.get_range(name, 0, _BEGINNING)
        end = _end(data[:_PREFIX])
        if end > len(data) == _BEGINNING:
            data += self._store.get_range(name, _BEGINNING, end - _BEGINNING)
        return self._decoded(Entry, name, memoryview(data)[_PREFIX:end])

    def keep(self, entry: Entry, result: Result) -> None:
        """Put an entry in the place of an older one of its key."""
        name = f"{ROOT}/{entry.key}"
        sealed = self._sealed(name, entry)
        self._store.put(name, [len(sealed).to_bytes(_PREFIX, "big"), sealed, self._sealed(name, result)])

    def kept_keys(self) -> list[str]:
        """Of every result, too old ones too."""
        return [info.name.removeprefix(f"{ROOT}/") for info in self._store.list(ROOT)]

    def remove(self, keys: Iterable[str]) -> None:
        self._store.delete(f"{ROOT}/{key}" for key in keys)

    # -- who reads whose blocks

    def borrow(self, entry: Entry, borrower: str) -> bool:
        """Say that a run reads the blocks of an entry; False: it was removed, and its blocks may be.

        Who collects removes the entry first and looks for borrowers then, so one of the two sees the other.
        """
        top = borrower.partition("/")[0]  # a child run is removed with it
        for lender, segments in entry.lent.items():
            for segment in segments if lender != borrower else ():
                self._store.put(f"runs/{lender}/lent/{top}/{segment}", b"")
        return self._store.head(f"{ROOT}/{entry.key}") is not None

    def _sealed(self, name: str, value: Entry | Result) -> bytes:
        return sealing.seal(self._key, _part(name, type(value)), msgspec.msgpack.encode(value))

    def _decoded(self, kind: type[T], name: str, data: memoryview) -> T:
        return decoded(kind, name, sealing.unseal(self._key, _part(name, kind), data))


def _part(name: str, kind: type[Entry] | type[Result]) -> str:
    """What is sealed as one cannot be taken for the other."""
    return f"{name} {kind.__name__}"


def _end(prefix: bytes | memoryview) -> int:
    """Where the entry ends."""
    return _PREFIX + int.from_bytes(prefix, "big")


def result_of(run: str, manifests: Iterable[Manifest], loop: LoopResult | None = None) -> Result | None:
    """What is kept of a node that is over; None when a block of it is where no other run can read it."""
    kept = tuple(_kept(manifest, run) for manifest in manifests)
    blocks = (outcome.block for manifest in kept for outcome in manifest.outcomes)
    if not all(block is None or block.locations for block in blocks):
        return None
    return Result(kept, replace(loop, origin=run) if loop is not None else None)


def entry_of(key: str, run: str, ttl: float, result: Result, now: float) -> Entry:
    """`run` is the folder of the one that made it."""
    lent: dict[str, dict[str, None]] = defaultdict(dict)
    for manifest in result.manifests:
        for place in {place for one in manifest.outcomes if one.block for place in one.block.locations}:
            if place.startswith(_ELSEWHERE):
                lent[place.removeprefix(_ELSEWHERE)][manifest.segment] = None
    return Entry(key, run, now, ttl, {lender: tuple(sorted(lent[lender])) for lender in sorted(lent)})


def _kept(manifest: Manifest, run: str) -> Manifest:
    outcomes = tuple(_lent(outcome, run) for outcome in manifest.outcomes)
    return replace(manifest, outcomes=outcomes, summary=replace(manifest.summary, read={}, spilled=0), origin=run)


def _lent(outcome: Outcome, run: str) -> Outcome:
    """The outcome as another run takes it over: nothing ran there."""
    block = replace(outcome.block, locations=_readable(outcome.block, run)) if outcome.block else None
    rest = Outcome(outcome.partition, outcome.attempt, outcome.kind, outcome.rows, block, metrics=outcome.metrics)
    return replace(rest, counts=outcome.counts, values=outcome.values)


def _readable(block: BlockRef, run: str) -> tuple[str, ...]:
    """Locations that last."""
    kept = [place for place in block.locations if place == "inline" or place.startswith(_ELSEWHERE)]
    return (*kept, f"{_ELSEWHERE}{run}") if "store" in block.locations else tuple(kept)


def lent_segments(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """run -> segments whose blocks are kept for others."""
    found: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for run, segments in entry.lent.items():
            found[run].update(segments)
    return dict(found)
