"""What a tick starts. Pure: which run a schedule's nominal time stands for is a function of that time alone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from treadle.dsl.triggers import ScheduleTrigger
from treadle.primitives.errors import UsageError

from ..identity import run_prefix
from ..mapping import Rules
from ..registry.deployment import Deployment
from ..starting import StartOrder


def tick_run(workflow: str, trigger: str, nominal: datetime) -> str:
    """`orders.nightly.20261121T020000Z`: the same for every tick, backfill or person that means this time."""
    return f"{run_prefix(workflow, trigger)}{nominal.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def schedule_of(deployment: Deployment, name: str) -> ScheduleTrigger:
    """Raises UsageError when this version has no such schedule."""
    trigger = deployment.spec.triggers.get(name)
    if not isinstance(trigger, ScheduleTrigger):
        hint = f"See: treadle trigger show {deployment.workflow}"
        raise UsageError(f"{deployment.name} has no schedule {name!r}", hint)
    return trigger


def order_for(deployment: Deployment, name: str, nominal: datetime) -> StartOrder:
    """The run that the schedule wants for a nominal time; `trigger.time` is that time in the trigger's timezone.

    Raises UsageError when there is no such schedule, Unfit when `with` cannot be evaluated.
    """
    when = nominal.astimezone(ZoneInfo(schedule_of(deployment, name).timezone))
    return Rules(deployment, name).order(tick_run(deployment.workflow, name, nominal), None, when)
