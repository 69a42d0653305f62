"""One version of a deployed workflow: everything that its runs need, so that no user module is imported again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise, read_normalised, without_triggers
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.orchestrator.run_store.run_files import Submission


class Position(Struct, frozen=True):
    """A position in a Kafka partition."""

    topic: str
    topic_id: str
    """The topic's UUID: a topic deleted and created again is a different one."""
    partition: int
    offset: int


class Paused(Struct, frozen=True):
    """The user has paused the trigger."""

    since: float
    """Seconds since the epoch."""
    reason: str = ""


class Deployment(Struct, frozen=True, dict=True):
    """A version of a deployed workflow, sealed under the deployment key. Versions count from 1; the newest is in
    effect."""

    workflow: str
    version: int
    time: float
    """Time of the deployment, in seconds since the epoch."""
    document: dict[str, Any]
    """The normalised spec, triggers included."""
    functions: dict[str, dict[str, Any]]
    """Function reference -> its properties (FunctionInfo)."""
    bundle: str
    """Digest of the user's code; empty if there is none."""
    base: str
    """Folder that relative URIs start from."""
    executor: str = ""
    """The executor of stages that name none, from the profile at deployment."""
    begins: dict[str, tuple[Position, ...]] | None = None
    """Kafka trigger -> the offsets from which this version decides; below them the previous version decides.

    The deciding version thus depends on the offset alone, and a redelivered record meets the same filter. A partition
    that is missing was created later: the version decides from its first record on. None: not measured yet
    (Registry.settle), and the trigger waits.
    """
    removed: bool = False
    """Undeployed: this version states that the workflow is not deployed."""
    nonce: str = ""
    """Distinguishes one's own write from a concurrent deployment of the same content."""

    @property
    def name(self) -> str:
        """In the form that commands accept: `orders@3`."""
        return f"{self.workflow}@{self.version}"

    @cached_property
    def spec(self) -> Spec:
        """The spec with its triggers."""
        return read_normalised(self.document)

    @cached_property
    def run_spec(self) -> dict[str, Any]:
        """The normalised spec that runs of this version use: without triggers, on which no run depends."""
        return normalise(without_triggers(self.spec))

    def submission(self, run: str, inputs: Mapping[str, Any]) -> Submission:
        """The submission of a run of this version. Raises InvalidInputs for values that the workflow does not
        accept."""
        resolved = resolve_inputs(self.spec, inputs)
        return Submission(run, self.run_spec, resolved, self.bundle, self.functions, self.base, self.executor)
