"""Triggers as `trigger list` and `trigger show` print them: what is deployed, and what services say of it."""

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


class Line(Struct, frozen=True):
    """A trigger in a listing. The keys are stable; a count is null where it is unknown, or not counted for the type."""

    trigger: str
    """`orders.live`"""
    type: str
    version: int
    about: str
    """What it listens to."""
    state: str
    """`paused`; as the service says (`running`, `failing`, `failed`, ...); `unserved`: no service says anything."""
    started: int | None = None
    dead: int | None = None
    active: int | None = None
    lag: int | None = None
    error: str = ""
    received: int | None = None
    repeated: int | None = None
    filtered: int | None = None
    since: str | None = None
    """When `error` began."""


def line(env: Environment, deployment: Deployment, name: str, statuses: Sequence[TriggerStatus]) -> Line:
    """`statuses`: what all services say or said of the trigger."""
    from treadle.triggers.registry.changes import listens_to

    target, settings = f"{deployment.workflow}.{name}", deployment.spec.triggers[name]
    about = listens_to(deployment.workflow, name, settings)
    found = replace(
        Line(target, settings.type, deployment.version, about, "unserved"), **_totals(settings.type, statuses)
    )
    said = _together(statuses)
    if said is not None:
        since = formatting.stamp(said.since) if said.error and said.since else None
        found = replace(found, state=said.state, error=said.error, since=since, **_now(settings.type, said))
    elif settings.type == "schedule":
        found = replace(found, state="scheduled")
    return replace(found, state="paused") if name in env.registry.paused(deployment.workflow) else found


def counted(kind: str) -> Set[str]:
    """What is counted of triggers of this type, as fields of a line."""
    from treadle.triggers.trigger_runner import COUNTED  # commands that look at runs need nothing of triggers

    return COUNTED[kind]


def _totals(kind: str, statuses: Sequence[TriggerStatus]) -> dict[str, int | None]:
    """What services counted, those that have ended as well. Temporal counts for schedules, so services agree."""
    names = counted(kind) & {"started", "dead", "received", "repeated", "filtered"}
    if not statuses:
        return {}
    combined = max if kind == "schedule" else sum
    return {name: combined(getattr(one, name) for one in statuses) for name in names}


def _now(kind: str, said: TriggerStatus) -> dict[str, int | None]:
    return {name: getattr(said, name) for name in counted(kind) & {"active", "lag"}}


def _together(statuses: Iterable[TriggerStatus]) -> TriggerStatus | None:
    """Of services that run now: each reads partitions of its own; all count all open runs. None: there is none."""
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


def row(found: Line) -> list[str]:
    """Under HEAD. `?`: unknown; `-`: not counted for this type."""
    counts = [count(found, name) for name in ("started", "active", "lag", "dead")]
    error = found.error.partition("\n")[0]
    return [found.trigger, found.type, str(found.version), state(found), *counts, found.about, error]


def count(found: Line, name: str) -> str:
    """A count of the line for people."""
    if name not in counted(found.type):
        return "-"
    number = getattr(found, name)
    return "?" if number is None else f"{number:,}"


def state(found: Line) -> str:
    """`failing since 2026-11-21 10:50:18`; a trigger that rests may fail as well."""
    if found.since is None:
        return found.state
    from datetime import datetime

    since = f"since {formatting.moment(datetime.fromisoformat(found.since))}"
    return f"{found.state}, failing {since}" if found.state in ("paused", "running") else f"{found.state} {since}"
