"""The output of `trigger list` and `trigger show`: deployed triggers, and the reports of services about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .common import formatting
from .common.environment import Environment

if TYPE_CHECKING:
    from treadle.triggers.registry.deployment import Deployment
    from treadle.triggers.trigger_runner import TriggerStatus


class TriggerLine(Struct, frozen=True):
    """A trigger in a listing. The keys are stable; a count is null if it is unknown, or not counted for the type."""

    trigger: str
    """`orders.live`"""
    type: str
    version: int
    about: str
    """Its source of events."""
    state: str
    """`paused`; a state reported by the service (`running`, `failing`, `failed`, ...); `unserved`: no service
    reports."""
    started: int | None = None
    dead: int | None = None
    active: int | None = None
    lag: int | None = None
    error: str = ""
    received: int | None = None
    repeated: int | None = None
    filtered: int | None = None
    since: str | None = None
    """Time of the first occurrence of `error`."""


def line(env: Environment, deployment: Deployment, name: str, statuses: Sequence[TriggerStatus]) -> TriggerLine:
    """`statuses`: current and past reports of all services about the trigger."""
    from treadle.triggers.registry.changes import listens_to

    target, settings = f"{deployment.workflow}.{name}", deployment.spec.triggers[name]
    about = listens_to(deployment.workflow, name, settings)
    found = replace(
        TriggerLine(target, settings.type, deployment.version, about, "unserved"), **_totals(settings.type, statuses)
    )
    said = _together(statuses)
    if said is not None:
        since = formatting.stamp(said.since) if said.error and said.since else None
        found = replace(found, state=said.state, error=said.error, since=since, **_now(settings.type, said))
    elif settings.type == "schedule":
        found = replace(found, state="scheduled")
    return replace(found, state="paused") if name in env.registry.paused(deployment.workflow) else found


def counted(kind: str) -> Set[str]:
    """The counts of this type of trigger, as field names of a line."""
    from treadle.triggers.trigger_runner import COUNTED  # imported late: commands about runs need no triggers

    return COUNTED[kind]


def _totals(kind: str, statuses: Sequence[TriggerStatus]) -> dict[str, int | None]:
    """Counts of all services, including ended ones. Schedules are counted by Temporal, so the services agree."""
    names = counted(kind) & {"started", "dead", "received", "repeated", "filtered"}
    if not statuses:
        return {}
    combined = max if kind == "schedule" else sum
    return {name: combined(getattr(one, name) for one in statuses) for name in names}


def _now(kind: str, said: TriggerStatus) -> dict[str, int | None]:
    return {name: getattr(said, name) for name in counted(kind) & {"active", "lag"}}


def _together(statuses: Iterable[TriggerStatus]) -> TriggerStatus | None:
    """Combine the reports of running services. Each reads its own partitions; all count all open runs. None: no service
    runs."""
    from treadle.triggers.status_store import lives

    living = sorted((one for one in statuses if lives(one)), key=lambda one: (bool(one.error), one.time))
    if not living:
        return None
    lags = [one.lag for one in living]
    return replace(
        living[-1],
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        active=max((one.active for one in living if one.active is not None), default=None),
        since=min((one.since for one in living if one.error), default=0.0),
    )


# -- text ----------------------------------------------------------------------------------------------------------

HEAD = ["trigger", "type", "version", "state", "started", "active", "waiting", "dead", "listens to", "error"]


def row(found: TriggerLine) -> list[str]:
    """The cells under HEAD. `?`: unknown; `-`: not counted for this type."""
    counts = [count(found, name) for name in ("started", "active", "lag", "dead")]
    error = found.error.partition("\n")[0]
    return [found.trigger, found.type, str(found.version), state(found), *counts, found.about, error]


def count(found: TriggerLine, name: str) -> str:
    """A count of the line as text."""
    if name not in counted(found.type):
        return "-"
    number = getattr(found, name)
    return "?" if number is None else f"{number:,}"


def state(found: TriggerLine) -> str:
    """`failing since 2026-11-21 10:50:18`; a paused trigger may fail as well."""
    if found.since is None:
        return found.state
    from datetime import datetime

    since = f"since {formatting.moment(datetime.fromisoformat(found.since))}"
    return f"{found.state}, failing {since}" if found.state in ("paused", "running") else f"{found.state} {since}"
