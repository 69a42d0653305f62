"""The objects of a run in the store (docs/architecture.md, "The store"), and their seals.

The requests to the store that drivers and commands made for a run. The counts are stored with the run.

Each process writes its count so far to its own object `runs/<run>/requests/<process>`. The count for a child run goes
to the outermost run. A folder on this machine has no price, so it keeps no counts.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from treadle.executors.program import Outcome, SharedCode
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.errors import MissingError, UsageError
from treadle.primitives.run_paths import child_run, run_folder
from treadle.primitives.stores import request_counts
from treadle.primitives.stores.input_files import is_local
from treadle.primitives.stores.store import Store

from ..plan.plan import Plan
from ..scheduler.instructions import Data, Summary

NO_CACHE = "noCache"
"""Memo key of a submission: take over no cached results. The run's own results are cached nevertheless."""


class Submission(Struct, frozen=True):
    """The definition of a run, sealed under the run's key. The store holds it; the workflow's input holds its
    digest."""

    run: str
    spec: dict[str, Any]
    """The normalised document."""
    inputs: dict[str, Any]
    bundle: str
    """Digest of the bundle. Empty: no user code."""
    functions: dict[str, dict[str, Any]]
    """Function reference -> the known facts of the function (FunctionInfo)."""
    base: str
    """The base folder of relative URIs."""
    executor: str = ""
    """The executor of stages that name none. Empty: the driver's default."""
    memo: dict[str, Any] = {}
    """The origin of a triggered run: `trigger`, `version`, and for a batch `end` and `count`."""
    shared: SharedCode | None = None
    """The place of the bundle. None: the run's own folder."""
    allow: tuple[str, ...] | UnsetType = UNSET
    """URI prefixes that a triggered run may use. Unset: a user started the run."""


def digest(submission: Submission) -> str:
    """SHA-256 in hex. Temporal carries it in place of the submission."""
    return hashlib.sha256(msgspec.msgpack.encode(submission, order="sorted")).hexdigest()


def same_workflow(known: Submission, new: Submission) -> str:
    """The difference between two submissions with the same id, in words. Empty: no relevant difference."""
    names = {"spec": "the workflow", "inputs": "the inputs", "bundle": "the code", "executor": "the executor"}
    differing = [words for field, words in names.items() if getattr(known, field) != getattr(new, field)]
    return " and ".join(differing)


OPEN = -1
"""The value of `expected` in a manifest that only invalidates the earlier ones."""


class Manifest(Struct, frozen=True):
    """The committed set of a closed segment, or of a task group of it, in partition order."""

    segment: str
    expected: int
    outcomes: tuple[Outcome, ...]
    summary: Summary
    groups: tuple[int, ...] = ()
    """In a stored manifest: the generation of each task group's manifest, which holds the outcomes. Empty: `outcomes`
    does."""
    origin: str = ""
    """The run that computed the result, if it was taken over. Empty: this run."""


class Closing(Struct, frozen=True):
    """A manifest with its outcomes not decoded, since they are many."""

    expected: int
    outcomes: tuple[msgspec.Raw, ...]
    summary: Summary
    groups: tuple[int, ...] = ()
    origin: str = ""

    @property
    def committed(self) -> int:
        """Committed partitions. A wide segment has no quorum, so all are."""
        return self.expected if self.groups else len(self.outcomes)


class GroupClosing(Struct, frozen=True):
    """The manifest of a task group without its outcomes."""

    expected: int
    """Partitions. All of them are committed."""
    summary: Summary


class LoopResult(Struct, frozen=True):
    """The result of a loop."""

    scalars: dict[str, Any]
    data: dict[str, Data]
    summary: Summary
    origin: str = ""
    """The run that computed it (see Manifest)."""

    def made_in(self, loop: str) -> list[str]:
        """The segments inside the loop that hold its last datasets. Other datasets existed before the loop."""
        last = {segment for data in self.data.values() for segment in data.segments}
        return sorted(segment for segment in last if segment.startswith(f"{loop}-"))


class RunResult(Struct, frozen=True):
    """The result of a successful child run."""

    outputs: dict[str, Any]


T = TypeVar("T", Submission, Plan, Manifest, Closing, GroupClosing, LoopResult, RunResult)
K = TypeVar("K", Submission, Plan, Manifest)


class RunFiles:
    """The sealed objects of one run."""

    def __init__(self, store: Store, run: str, key: bytes) -> None:
        self.store, self.run, self.key = store, run, key
        self._objects = sealing.SealedStore(store, key)
        self.prefix = f"runs/{run_folder(run)}"

    def segment(self, segment: str) -> str:
        return f"{self.prefix}/segments/{segment}"

    def load(self, kind: type[T], name: str) -> T:
        """Decode an object. Raises MissingError, or CorruptError for an object that this deployment did not write."""
        return decoded(kind, f"{self.prefix}/{name}", self.load_bytes(name))

    def load_bytes(self, name: str) -> memoryview:
        """Like `load`, undecoded."""
        return self._objects.get(f"{self.prefix}/{name}")

    def find(self, kind: type[T], name: str) -> T | None:
        try:
            return self.load(kind, name)
        except MissingError:
            return None

    def create(self, name: str, value: Submission | Plan | Manifest | LoopResult | RunResult) -> bool:
        """Write an object. False: it exists already, and the existing one is valid."""
        try:
            payload = msgspec.msgpack.encode(value)
        except OverflowError:
            text = f"run {self.run} has a whole number of more than 64 bits"
            raise UsageError(text, "Write it as text, or as a float.") from None
        return self.create_bytes(name, payload)

    def keep(self, name: str, value: K) -> K:
        """Write an object unless it exists. Returns the valid one, which is the first one written."""
        return value if self.create(name, value) else self.load(type(value), name)

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
        """The id of a stage's child run, which is its latest."""
        return self.children([stage])[stage][-1]

    def children(self, stages: Collection[str]) -> dict[str, list[str]]:
        """The ids of all runs of each of these stages, in the order of their start. Uses one listing.

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
        """Make the next run of a stage a new one, with a new id."""
        self.create_bytes(f"begun/{stage}/{len(self.children([stage])[stage]) + 1}", b"")

    # -- manifests

    def generation(self, segment: str) -> int:
        """The generation of the newest manifest. 0: the segment is not closed."""
        return max(self._generations(segment), default=0)

    def manifest(self, segment: str) -> Manifest | None:
        """The newest manifest of a segment with every outcome. None: the segment is not closed."""
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
        """The newest manifest of a segment with its outcomes not decoded. None: the segment is not closed."""
        generation = self.generation(segment)
        found = self.load(Closing, f"segments/{segment}/manifest/{generation}") if generation else None
        return found if found is not None and found.expected != OPEN else None

    def create_manifest(self, manifest: Manifest, generation: int) -> Manifest:
        """Close a segment. Returns the valid manifest, which is the first one written."""
        return self.keep(f"segments/{manifest.segment}/manifest/{generation}", manifest)

    # -- task groups

    def closed_groups(self, segment: str) -> dict[int, int]:
        """Group -> generation of its newest manifest."""
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
        """Close a task group. The first manifest written is the valid one."""
        self.create(f"segments/{manifest.segment}/closed/{group}/{generation}", manifest)

    def group_ledger(self, segment: str, group: int) -> str:
        return f"{self.segment(segment)}/groups/{group}"

    def ledgers(self, segment: str) -> list[str]:
        """The segment's own ledger, and the ledgers of its task groups."""
        inner = {info.name.partition("/ledger/")[0] for info in self.store.list(f"{self.segment(segment)}/groups/")}
        return [self.segment(segment), *sorted(inner)]

    def has_ledger(self, segment: str) -> bool:
        """Returns whether a dispatcher has begun the segment's ledger."""
        return any(self.store.list(f"{self.segment(segment)}/ledger/"))

    def _generations(self, segment: str) -> Iterator[int]:
        for info in self.store.list(f"{self.segment(segment)}/manifest/"):
            yield int(info.name.rsplit("/", 1)[1])


_PROCESS = f"{os.getpid()}-{secrets.token_hex(4)}"


def keep_requests(files: RunFiles) -> None:
    """Write this process's count, this write included. `files`: of the outermost run. Raises StoreError."""
    if is_local(files.store.url):
        return
    made = Counter(request_counts.of_run(files.run)) + Counter(put=1)
    name = f"{_folder(files)}/{_PROCESS}"
    sealing.SealedStore(files.store, files.key).put(name, msgspec.msgpack.encode(dict(made)))


def read_requests(files: RunFiles) -> dict[str, int] | None:
    """The sum over processes. None: no counts exist. Raises StoreError and CorruptError."""
    names = [info.name for info in files.store.list(_folder(files))]
    objects = sealing.SealedStore(files.store, files.key)
    found = [decoded(dict[str, int], name, objects.get(name)) for name in names]
    return dict(sum((Counter(one) for one in found), Counter())) if found else None


def _folder(files: RunFiles) -> str:
    return f"{files.prefix}/requests"
