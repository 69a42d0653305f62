"""Results kept for later runs: an entry under each content key.

cache/<key>                       an Entry: the manifest of the segment that made the result
runs/<run>/lent/<other>/<segment> the other run reads blocks of that segment; there before it does

An entry holds references, not data: the blocks stay where the run that made them put them, and whoever takes a result
over reads them there (`store:<run>` as their location). A reference authenticates its block by itself (decision 0003),
so no key of that run is needed; the entry is sealed under a key of the deployment, and the run that takes it over seals
the manifest anew under its own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives import trust
from treadle.primitives.decoding import known
from treadle.primitives.errors import MissingError
from treadle.primitives.references import BlockRef
from treadle.primitives.store import Store

from ..runfiles import Manifest

ROOT = "cache"
NO_CACHE = "noCache"
"""In the memo of a submission: take nothing over. What the run makes is kept nevertheless."""
_INFO = b"treadle cache"
_ELSEWHERE = "store:"


class Entry(Struct, frozen=True):
    """The result of a segment."""

    key: str
    run: str
    """Folder of the run that made it, for people."""
    made: float
    """Seconds since the epoch."""
    ttl: float
    """Seconds; whoever takes it goes by a time of its own, and gc by this one."""
    manifest: Manifest
    """As every run can read it."""

    def age(self, now: float) -> float:
        return max(0.0, now - self.made)

    @property
    def lenders(self) -> set[str]:
        """Runs whose blocks it consists of."""
        places = {place for one in self.manifest.outcomes if one.block for place in one.block.locations}
        return {place.removeprefix(_ELSEWHERE) for place in places if place.startswith(_ELSEWHERE)}


class Entries:
    """The results kept in one store."""

    def __init__(self, store: Store, key: bytes) -> None:
        """`key` is the deployment's."""
        self._store = store
        self._key = trust.hkdf(key, salt=b"treadle deployment key", info=_INFO)

    def find(self, key: str, ttl: float) -> Entry | None:
        """A result that is not older than `ttl` seconds. Raises CorruptError for one of somebody else, StoreError."""
        try:
            entry = self._load(f"{ROOT}/{key}")
        except MissingError:
            return None
        return entry if entry.age(time.time()) <= ttl else None

    def keep(self, entry: Entry) -> None:
        """Put an entry in the place of an older one of its key."""
        name = f"{ROOT}/{entry.key}"
        self._store.put(name, trust.seal(self._key, name, msgspec.msgpack.encode(entry)))

    def all(self) -> Iterator[Entry]:
        """Every result, too old ones too. Raises as `find` does."""
        for info in self._store.list(ROOT):
            try:
                yield self._load(info.name)
            except MissingError:  # removed since
                continue

    def remove(self, keys: Iterable[str]) -> None:
        self._store.delete(f"{ROOT}/{key}" for key in keys)

    # -- who reads whose blocks

    def borrow(self, entry: Entry, borrower: str) -> bool:
        """Say that a run reads the blocks of an entry; False: it was removed, and its blocks may be.

        Who collects removes the entry first and looks for borrowers then, so one of the two sees the other.
        """
        for lender in entry.lenders - {borrower}:
            top = borrower.partition("/")[0]  # a child run is removed with it
            self._store.put(f"runs/{lender}/lent/{top}/{entry.manifest.segment}", b"")
        return self._store.head(f"{ROOT}/{entry.key}") is not None

    def _load(self, name: str) -> Entry:
        return msgspec.msgpack.decode(trust.unseal(self._key, name, self._store.get(name)), type=known(Entry))


def entry_of(key: str, run: str, ttl: float, manifest: Manifest, now: float) -> Entry | None:
    """What is kept of a closed segment; None when a block of it is where no other run can read it."""
    outcomes = [_lent(outcome, run) for outcome in manifest.outcomes]
    if not all(outcome.block is None or outcome.block.locations for outcome in outcomes):
        return None
    summary = replace(manifest.summary, read={})
    kept = replace(manifest, outcomes=tuple(outcomes), summary=summary, origin=run)
    return Entry(key, run, now, ttl, kept)


def _lent(outcome: Outcome, run: str) -> Outcome:
    """The outcome as another run takes it over: nothing ran there."""
    block = replace(outcome.block, locations=_readable(outcome.block, run)) if outcome.block else None
    rest = Outcome(outcome.partition, outcome.attempt, outcome.kind, outcome.rows, block, metrics=outcome.metrics)
    return replace(rest, counts=outcome.counts)


def _readable(block: BlockRef, run: str) -> tuple[str, ...]:
    """Locations that last."""
    kept = [place for place in block.locations if place == "inline" or place.startswith(_ELSEWHERE)]
    return (*kept, f"{_ELSEWHERE}{run}") if "store" in block.locations else tuple(kept)


def lent_segments(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """run -> segments whose blocks are kept for others."""
    found: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for run in entry.lenders:
            found[run].add(entry.manifest.segment)
    return dict(found)
