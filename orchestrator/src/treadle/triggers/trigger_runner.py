"""What the service needs of a trigger of any kind, and what it says about each."""

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
"""Type of a trigger -> what is counted of it, as fields of TriggerStatus."""


class Counts(Struct, frozen=True):
    """What became of a trigger's events."""

    started: int = 0
    """Runs."""
    dead: int = 0
    """Dead letters."""
    received: int = 0
    """Events that were judged."""
    repeated: int = 0
    """Starts that found their run there: the event had been delivered before."""
    filtered: int = 0
    """Events that the filter passed over."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class TriggerStatus(Struct, frozen=True):
    """How a trigger does in one process, as `trigger list` and `trigger show` tell it."""

    workflow: str
    trigger: str
    type: str
    version: int
    state: State
    """`failing`: it waits for Temporal, a broker or a store, and tries again for ever; `failed`: only a person can
    help. Both: see `error` and `since`."""
    started: int = 0
    dead: int = 0
    active: int | None = None
    """Runs that are open; None: unknown."""
    lag: int | None = None
    """Events that wait; None: unknown."""
    error: str = ""
    """What is wrong now, and what to do; empty: nothing is known to be wrong."""
    time: float = 0.0
    """Of this status, in seconds since the epoch."""
    received: int = 0
    repeated: int = 0
    filtered: int = 0
    since: float = 0.0
    """When `error` began, in seconds since the epoch; 0: there is none."""

    def measured(self, name: str) -> int | None:
        """A count by its name; None: unknown, or not counted for the type."""
        found: int | None = getattr(self, name) if name in COUNTED.get(self.type, ()) else None
        return found

    @property
    def counts(self) -> Counts:
        return Counts(self.started, self.dead, self.received, self.repeated, self.filtered)


@dataclass(frozen=True)
class TriggerSite:
    """What runners have in common."""

    home: Home
    profile: Profile
    client: Client
    store: Store
    key: bytes
    """The deployment key."""
    registry: Registry
    starter: Starter
    instance: str
    """Tells processes that share a trigger apart; who comes back under it is the same one to a broker."""


class TriggerRunner(Protocol):
    """One trigger of one deployed workflow, from `start` to `stop`. Neither may wait for what may not answer."""

    async def start(self) -> None:
        """Begin; what fails later is told by `status`, and tried again. Raises TreadleError for what cannot be."""
        ...

    async def update(self, deployment: Deployment, paused: bool) -> None:
        """The newest version, which has this trigger, and whether the trigger shall rest. Called when either changes,
        and before `start`."""
        ...

    async def stop(self) -> None:
        """End in order: what was started is remembered, nothing more is started."""
        ...

    def status(self) -> TriggerStatus: ...
