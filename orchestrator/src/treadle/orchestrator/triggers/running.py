"""What the service needs of a trigger of any kind, and what it says about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.primitives.stores.store import Store

    from ..environment.home import Home
    from ..environment.profile import Profile
    from .registry.deployment import Deployment
    from .registry.registry import Registry
    from .starting import Starter

State = Literal["starting", "running", "paused", "waiting", "failed", "stopped"]


class TriggerStatus(Struct, frozen=True):
    """How a trigger does in one process, as `trigger list` and `trigger show` tell it."""

    workflow: str
    trigger: str
    type: str
    version: int
    state: State
    """`waiting`: for Temporal, a broker or a store, for ever; `failed`: only a person can help, see `error`."""
    started: int = 0
    """Runs, by this process."""
    dead: int = 0
    """Dead letters, by this process."""
    active: int | None = None
    """Runs that are open, where `maxActive` makes it count them."""
    lag: int | None = None
    """Events that wait, where that can be told."""
    error: str = ""
    """The last thing that went wrong, and what to do."""
    time: float = 0.0
    """Of this status, in seconds since the epoch."""


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
