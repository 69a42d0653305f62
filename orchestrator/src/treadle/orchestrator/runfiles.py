"""Where a run keeps its things in the store, and how they are sealed.

runs/<run>/spec                                what was submitted
runs/<run>/bundle                              the user's code
runs/<run>/plan                                the plan
runs/<run>/segments/<segment>/ledger/<n>       the chain of records
runs/<run>/segments/<segment>/manifest/<g>     the committed set once closed; g grows with repairs
runs/<run>/segments/<loop>/result              a loop's last state
runs/<run>/blocks/<segment>/...                the data
runs/<run>/attempts/<segment>/<n>.jsonl        errors and logs of attempts
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from treadle.executors.program import Outcome
from treadle.primitives import trust
from treadle.primitives.errors import MissingError
from treadle.primitives.run_names import run_folder
from treadle.primitives.store import Store

from .plan import Plan
from .scheduler import Data, Summary


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


class Manifest(Struct, frozen=True):
    """The committed set of a closed segment, in partition order."""

    segment: str
    expected: int
    outcomes: tuple[Outcome, ...]
    summary: Summary


class LoopResult(Struct, frozen=True):
    """How a loop ended."""

    scalars: dict[str, Any]
    data: dict[str, Data]
    summary: Summary


T = TypeVar("T", Submission, Plan, Manifest, LoopResult)


class RunFiles:
    """The sealed objects of one run."""

    def __init__(self, store: Store, run: str, key: bytes) -> None:
        self.store, self.run, self.key = store, run, key
        self.prefix = f"runs/{run_folder(run)}"

    def segment(self, segment: str) -> str:
        return f"{self.prefix}/segments/{segment}"

    def load(self, kind: type[T], name: str) -> T:
        """Raises MissingError, or CorruptError for an object that this deployment did not write."""
        return msgspec.msgpack.decode(self.load_bytes(name), type=kind)

    def load_bytes(self, name: str) -> memoryview:
        """As `load`, undecoded."""
        path = f"{self.prefix}/{name}"
        return trust.unseal(self.key, path, self.store.get(path))

    def find(self, kind: type[T], name: str) -> T | None:
        try:
            return self.load(kind, name)
        except MissingError:
            return None

    def create(self, name: str, value: Submission | Plan | Manifest | LoopResult) -> bool:
        """False when the object exists already; it is then the one that counts."""
        return self.create_bytes(name, msgspec.msgpack.encode(value))

    def create_bytes(self, name: str, payload: bytes) -> bool:
        path = f"{self.prefix}/{name}"
        return self.store.create(path, trust.seal(self.key, path, payload))

    # -- manifests

    def generation(self, segment: str) -> int:
        """Of the newest manifest; 0: the segment is not closed."""
        return max(self._generations(segment), default=0)

    def manifest(self, segment: str) -> Manifest | None:
        """The newest manifest of a segment."""
        generation = self.generation(segment)
        return self.load(Manifest, f"segments/{segment}/manifest/{generation}") if generation else None

    def create_manifest(self, manifest: Manifest, generation: int) -> Manifest:
        """Close a segment; returns the manifest that counts, which is the first one written."""
        name = f"segments/{manifest.segment}/manifest/{generation}"
        return manifest if self.create(name, manifest) else self.load(Manifest, name)

    def _generations(self, segment: str) -> Iterator[int]:
        for info in self.store.list(f"{self.segment(segment)}/manifest/"):
            yield int(info.name.rsplit("/", 1)[1])
