"""The interface between the service and a trigger of any kind, and the status of a trigger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct
from msgspec.structs import astuple

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.orchestrator.environment.home import Home
    from treadle.orchestrator.environment.profile import Profile
    from treadle.primitives.stores.store import Store

    from .registry.deployment import Deployment
    from .registry.registry import Registry
    from .start_requests import Starter

State = Literal["starting", "running", "paused", "failing", "failed", "stopped"]


COUNTED = {
    "kafka": {"started", "active", "lag", "dead", "received", "repeated", "filtered"},
    "object": {"started", "active", "lag", "dead"},
    "schedule": {"started", "active"},
    "webhook": {"started", "active", "dead"},
}
"""Type of a trigger -> its counts, as fields of TriggerStatus."""


class Counts(Struct, frozen=True):
    """Counts of a trigger's events."""

    started: int = 0
    """Runs."""
    dead: int = 0
    """Dead letters."""
    received: int = 0
    """Events on which the trigger decided."""
    repeated: int = 0
    """Starts whose run existed already: the event had been delivered before."""
    filtered: int = 0
    """Events that were filtered out."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class TriggerStatus(Struct, frozen=True):
    """The status of a trigger in one process, for `trigger list` and `trigger show`."""

    workflow: str
    trigger: str
    type: str
    version: int
    state: State
    """`failing`: it waits for Temporal, a broker or a store, and retries forever; `failed`: only the user can fix it.
    For both see `error` and `since`."""
    started: int = 0
    dead: int = 0
    active: int | None = None
    """Open runs; None: unknown."""
    lag: int | None = None
    """Waiting events; None: unknown."""
    error: str = ""
    """The current problem and its remedy; empty: no problem is known."""
    time: float = 0.0
    """Time of this status, in seconds since the epoch."""
    received: int = 0
    repeated: int = 0
    filtered: int = 0
    since: float = 0.0
    """Time of the first occurrence of `error`, in seconds since the epoch; 0: no error."""

    def measured(self, name: str) -> int | None:
        """A count by its name; None: unknown, or not counted for the type."""
        found: int | None = getattr(self, name) if name in COUNTED.get(self.type, ()) else None
        return found

    @property
    def counts(self) -> Counts:
        return Counts(self.started, self.dead, self.received, self.repeated, self.filtered)


@dataclass(frozen=True)
class TriggerSite:
    """The resources that runners share."""

    home: Home
    profile: Profile
    client: Client
    store: Store
    key: bytes
    """The deployment key."""
    registry: Registry
    starter: Starter
    instance: str
    """Distinguishes processes that share a trigger; a broker treats a process that returns under this name as the
    same."""


class TriggerRunner(Protocol):
    """One trigger of one deployed workflow, from `start` to `stop`. Neither may wait for a service that may not
    answer."""

    async def start(self) -> None:
        """Start; `status` reports later failures, which are retried. Raises TreadleError for an impossible trigger."""
        ...

    async def update(self, deployment: Deployment, paused: bool) -> None:
        """Set the newest version, which has this trigger, and whether the trigger is paused. Called when either
        changes, and before `start`."""
        ...

    async def stop(self) -> None:
        """Shut down in order: started runs are recorded, and no further ones are started."""
        ...

    def status(self) -> TriggerStatus: ...
