"""Maps a tick to its run. Pure: the run of a schedule's nominal time depends on that time alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from treadle.dsl.triggers import ScheduleTrigger
from treadle.dsl.validation.cron import parse_cron
from treadle.primitives.errors import UsageError

from ..event_mapping import Rules
from ..registry.deployment import Deployment
from ..run_ids import run_prefix
from ..start_requests import StartOrder


def tick_run(workflow: str, trigger: str, nominal: datetime) -> str:
    """`orders.nightly.20261121T020000Z`: the same for every tick, backfill or request of this time."""
    return f"{run_prefix(workflow, trigger)}{nominal.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def schedule_of(deployment: Deployment, name: str) -> ScheduleTrigger:
    """Raises UsageError when this version has no such schedule."""
    trigger = deployment.spec.triggers.get(name)
    if not isinstance(trigger, ScheduleTrigger):
        known = sorted(key for key, one in deployment.spec.triggers.items() if isinstance(one, ScheduleTrigger))
        hint = f"Only schedules have times; it has: {', '.join(known) or 'none'}."
        raise UsageError(f"{deployment.name} has no schedule {name!r}", hint)
    return trigger


def instants(when: datetime, zone: ZoneInfo) -> list[datetime]:
    """The instants of a time in the zone, in order: two for a local time that occurs twice when clocks go back.

    A local time that is skipped when clocks go forward means the instant equally long after the change.
    """
    if when.tzinfo is not None:
        return [when.astimezone(zone)]
    both = [when.replace(tzinfo=zone, fold=fold).astimezone(UTC).astimezone(zone) for fold in (0, 1)]
    there = [one for one in both if one.replace(tzinfo=None, fold=0) == when.replace(fold=0)]
    # Datetimes of one zone are equal when clocks show the same, although the instants differ.
    distinct = {one.timestamp(): one for one in there}
    return [distinct[at] for at in sorted(distinct)] or both[:1]


def is_repeated(nominal: datetime, zone: ZoneInfo) -> bool:
    """Whether this local time occurs twice. Only the Temporal server knows which of the two a cron uses."""
    return len(instants(nominal.astimezone(zone).replace(tzinfo=None), zone)) > 1


def is_tick(settings: ScheduleTrigger, nominal: datetime) -> bool:
    """Whether the time matches the schedule. For an hour that occurs twice, when clocks go back, the server omits some
    times. These still match, by the definition of the schedule."""
    if settings.interval is not None:
        return (nominal.timestamp() - int(settings.offset or 0)) % settings.interval == 0
    at = nominal.astimezone(ZoneInfo(settings.timezone))
    crons = [settings.cron] if isinstance(settings.cron, str) else settings.cron or []
    whole = at.second == at.microsecond == 0
    return whole and any(_fits(parse_cron(cron), at) for cron in crons)


def _fits(allowed: Sequence[frozenset[int]], at: datetime) -> bool:
    minutes, hours, days, months, weekdays = allowed
    on_day = at.day in days and at.month in months and not weekdays.isdisjoint((at.isoweekday(), at.isoweekday() % 7))
    return on_day and at.hour in hours and at.minute in minutes


def order_for(deployment: Deployment, name: str, nominal: datetime) -> StartOrder:
    """The run of the schedule for a nominal time; `trigger.time` is that time in the trigger's timezone.

    Raises UsageError when the schedule does not exist, Unfit when `with` cannot be evaluated.
    """
    when = nominal.astimezone(ZoneInfo(schedule_of(deployment, name).timezone))
    return Rules(deployment, name).order(tick_run(deployment.workflow, name, nominal), None, when)
