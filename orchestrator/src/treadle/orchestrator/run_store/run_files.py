"""Where a run keeps its things in the store (docs/architecture.md, "The store"), and how they are sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from treadle.executors.program import Outcome, SharedCode
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.errors import MissingError, UsageError
from treadle.primitives.run_paths import child_run, run_folder
from treadle.primitives.stores.store import Store

from ..plan.plan import Plan
from ..scheduler.instructions import Data, Summary

NO_CACHE = "noCache"
"""In the memo of a submission: take nothing over. What the run makes is kept nevertheless."""


class Submission(Struct, frozen=True):
    """Everything a run is defined by; sealed under the run's key, in the store and in the workflow's input."""

    run: str
    spec: dict[str, Any]
    """Normalised."""
    inputs: dict[str, Any]
    bundle: str
    """Digest; empty without user code."""
    functions: dict[str, dict[str, Any]]
    """Function reference -> what is known of it (FunctionInfo)."""
    base: str
    """Folder that relative URIs start from."""
    executor: str = ""
    """Where stages run that name none; empty: where the driver says."""
    memo: dict[str, Any] = {}
    """What the start of a triggered run says of itself: `trigger`, `version`, and of a batch `end` and `count`."""
    shared: SharedCode | None = None
    """Where the bundle is; None: with the run."""
    allow: tuple[str, ...] | UnsetType = UNSET
    """Prefixes of what it may touch, since an event started it; unset: a person did."""


def digest(submission: Submission) -> str:
    """SHA-256, in hex: what Temporal carries of it."""
    return hashlib.sha256(msgspec.msgpack.encode(submission, order="sorted")).hexdigest()


def same_workflow(known: Submission, new: Submission) -> str:
    """What differs between two submissions under one id; empty: nothing that matters."""
    names = {"spec": "the workflow", "inputs": "the inputs", "bundle": "the code", "executor": "the executor"}
    differing = [words for field, words in names.items() if getattr(known, field) != getattr(new, field)]
    return " and ".join(differing)


OPEN = -1
"""Partitions that a manifest expects which only says that the ones before it count no more."""


class Manifest(Struct, frozen=True):
    """The committed set of a closed segment, or of a task group of it, in partition order."""

    segment: str
    expected: int
    outcomes: tuple[Outcome, ...]
    summary: Summary
    groups: tuple[int, ...] = ()
    """As it is stored: the generation of each task group's manifest, which has the outcomes; empty: they are here."""
    origin: str = ""
    """The run that made all this, where it was taken over; empty: this one."""


class Closing(Struct, frozen=True):
    """What a manifest says beside its outcomes; they are many."""

    expected: int
    outcomes: tuple[msgspec.Raw, ...]
    summary: Summary
    groups: tuple[int, ...] = ()
    origin: str = ""

    @property
    def committed(self) -> int:
        """Partitions; a wide segment has no quorum."""
        return self.expected if self.groups else len(self.outcomes)


class GroupClosing(Struct, frozen=True):
    """What the manifest of a task group says beside its outcomes."""

    expected: int
    """Partitions, all of them committed."""
    summary: Summary


class LoopResult(Struct, frozen=True):
    """How a loop ended."""

    scalars: dict[str, Any]
    data: dict[str, Data]
    summary: Summary
    origin: str = ""
    """As of a manifest."""

    def made_in(self, loop: str) -> list[str]:
        """The segments inside of the loop that its last datasets are in; others were there before."""
        last = {segment for data in self.data.values() for segment in data.segments}
        return sorted(segment for segment in last if segment.startswith(f"{loop}-"))


class RunResult(Struct, frozen=True):
    """How a child run succeeded."""

    outputs: dict[str, Any]


T = TypeVar("T", Submission, Plan, Manifest, Closing, GroupClosing, LoopResult, RunResult)


class RunFiles:
    """The sealed objects of one run."""

    def __init__(self, store: Store, run: str, key: bytes) -> None:
        self.store, self.run, self.key = store, run, key
        self._objects = sealing.SealedStore(store, key)
        self.prefix = f"runs/{run_folder(run)}"

    def segment(self, segment: str) -> str:
        return f"{self.prefix}/segments/{segment}"

    def load(self, kind: type[T], name: str) -> T:
        """Raises MissingError, or CorruptError for an object that this deployment did not write."""
        return decoded(kind, f"{self.prefix}/{name}", self.load_bytes(name))

    def load_bytes(self, name: str) -> memoryview:
        """As `load`, undecoded."""
        return self._objects.get(f"{self.prefix}/{name}")

    def find(self, kind: type[T], name: str) -> T | None:
        try:
            return self.load(kind, name)
        except MissingError:
            return None

    def create(self, name: str, value: Submission | Plan | Manifest | LoopResult | RunResult) -> bool:
        """False when the object exists already; it is then the one that counts."""
        try:
            payload = msgspec.msgpack.encode(value)
        except OverflowError:
            text = f"run {self.run} has a whole number of more than 64 bits"
            raise UsageError(text, "Write it as text, or as a float.") from None
        return self.create_bytes(name, payload)

    def create_bytes(self, name: str, payload: bytes) -> bool:
        return self._objects.create(f"{self.prefix}/{name}", payload)

    def code(self, submission: Submission) -> bytes:
        """The bundle of this run; empty without user code. Raises MissingError, CorruptError."""
        if not submission.bundle:
            return b""
        if submission.shared is not None:
            name = submission.shared.name
            return bytes(sealing.pinned(name, self.store.get(name), submission.shared.digest))
        return bytes(self.load_bytes("bundle"))

    # -- children

    def child(self, stage: str) -> str:
        """The id of the run that a stage is: the one that began last."""
        return self.children([stage])[stage][-1]

    def children(self, stages: Collection[str]) -> dict[str, list[str]]:
        """The ids of all runs that each of these stages was, in the order in which they began. One listing.

        Raises CorruptError.
        """
        numbers: dict[str, list[int]] = {stage: [1] for stage in stages}
        for info in self.store.list(f"{self.prefix}/begun") if stages else ():
            stage, number = info.name.rsplit("/", 2)[1:]
            if stage in numbers:
                self.load_bytes(f"begun/{stage}/{number}")
                numbers[stage].append(int(number))
        return {stage: [child_run(self.run, stage, number) for number in sorted(numbers[stage])] for stage in stages}

    def begin_anew(self, stage: str) -> None:
        """Have the next run of a stage be another one than before."""
        self.create_bytes(f"begun/{stage}/{len(self.children([stage])[stage]) + 1}", b"")

    # -- manifests

    def generation(self, segment: str) -> int:
        """Of the newest manifest; 0: the segment is not closed."""
        return max(self._generations(segment), default=0)

    def manifest(self, segment: str) -> Manifest | None:
        """The newest manifest of a segment, with every outcome."""
        generation = self.generation(segment)
        found = self.load(Manifest, f"segments/{segment}/manifest/{generation}") if generation else None
        if found is None or found.expected == OPEN:
            return None
        if not found.groups:
            return found
        pieces = [self.group(segment, *one) for one in enumerate(found.groups)]
        outcomes = tuple(outcome for piece in pieces for outcome in piece.outcomes)
        return msgspec.structs.replace(found, outcomes=outcomes, groups=())

    def closing(self, segment: str) -> Closing | None:
        """What the newest manifest of a segment says, its outcomes not decoded."""
        generation = self.generation(segment)
        found = self.load(Closing, f"segments/{segment}/manifest/{generation}") if generation else None
        return found if found is not None and found.expected != OPEN else None

    def create_manifest(self, manifest: Manifest, generation: int) -> Manifest:
        """Close a segment; returns the manifest that counts, which is the first one written."""
        name = f"segments/{manifest.segment}/manifest/{generation}"
        return manifest if self.create(name, manifest) else self.load(Manifest, name)

    # -- task groups

    def closed_groups(self, segment: str) -> dict[int, int]:
        """group -> generation of its newest manifest."""
        found: dict[int, int] = {}
        for info in self.store.list(f"{self.segment(segment)}/closed/"):
            group, generation = map(int, info.name.rsplit("/", 2)[1:])
            found[group] = max(generation, found.get(group, 0))
        return found

    def group(self, segment: str, group: int, generation: int) -> Manifest:
        return self.load(Manifest, f"segments/{segment}/closed/{group}/{generation}")

    def group_closing(self, segment: str, group: int, generation: int) -> GroupClosing:
        return self.load(GroupClosing, f"segments/{segment}/closed/{group}/{generation}")

    def close_group(self, manifest: Manifest, group: int, generation: int) -> None:
        """The first manifest written is the one that counts."""
        self.create(f"segments/{manifest.segment}/closed/{group}/{generation}", manifest)

    def group_ledger(self, segment: str, group: int) -> str:
        return f"{self.segment(segment)}/groups/{group}"

    def ledgers(self, segment: str) -> list[str]:
        """Where the chains of a segment are: its own, and those of its task groups."""
        inner = {info.name.partition("/ledger/")[0] for info in self.store.list(f"{self.segment(segment)}/groups/")}
        return [self.segment(segment), *sorted(inner)]

    def has_ledger(self, segment: str) -> bool:
        """Somebody has begun to write it."""
        return any(self.store.list(f"{self.segment(segment)}/ledger/"))

    def _generations(self, segment: str) -> Iterator[int]:
        for info in self.store.list(f"{self.segment(segment)}/manifest/"):
            yield int(info.name.rsplit("/", 1)[1])
