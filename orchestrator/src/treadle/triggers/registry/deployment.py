"""One version of a deployed workflow: everything that a run of it needs, so that no user module is imported again."""

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
    """A place in a Kafka partition."""

    topic: str
    topic_id: str
    """The topic's UUID: a topic deleted and made again is another one."""
    partition: int
    offset: int


class Paused(Struct, frozen=True):
    """Somebody wants the trigger to start nothing."""

    since: float
    """Seconds since the epoch."""
    reason: str = ""


class Deployment(Struct, frozen=True, dict=True):
    """A version of a deployed workflow; sealed under the deployment key. Versions count from 1, the newest counts."""

    workflow: str
    version: int
    time: float
    """When it was deployed, in seconds since the epoch."""
    document: dict[str, Any]
    """The normalised spec, triggers included."""
    functions: dict[str, dict[str, Any]]
    """Function reference -> what is known of it (FunctionInfo)."""
    bundle: str
    """Digest of the user's code; empty without any."""
    base: str
    """Folder that relative URIs start from."""
    executor: str = ""
    """Where stages run that name none; as the profile said when it was deployed."""
    begins: dict[str, tuple[Position, ...]] | None = None
    """Kafka trigger -> from these offsets on this version decides; below them the version before it does.

    Which version decides is thus a function of the offset alone: a redelivered record meets the same filter. A
    partition that is not named was made later: the version decides from its first record on. None: nobody has said it
    yet (Registry.settle), and the trigger waits.
    """
    removed: bool = False
    """Undeployed: the version that says that there is none."""
    nonce: str = ""
    """Tells one's own write from that of another who deployed the same at the same time."""

    @property
    def name(self) -> str:
        """As commands take it: `orders@3`."""
        return f"{self.workflow}@{self.version}"

    @cached_property
    def spec(self) -> Spec:
        """With its triggers."""
        return read_normalised(self.document)

    @cached_property
    def run_spec(self) -> dict[str, Any]:
        """Normalised, as runs of this version pin it: without triggers, which no run depends on."""
        return normalise(without_triggers(self.spec))

    def submission(self, run: str, inputs: Mapping[str, Any]) -> Submission:
        """What a run of this version is defined by. Raises InvalidInputs for values the workflow does not accept."""
        resolved = resolve_inputs(self.spec, inputs)
        return Submission(run, self.run_spec, resolved, self.bundle, self.functions, self.base, self.executor)
