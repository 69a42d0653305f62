"""Schedules around clock changes: the server's times, and the ticks of a backfill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from triggers.deployed import deploy, document, read

from treadle.client.testing.service import Service, service
from treadle.dsl.triggers import ScheduleTrigger
from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError
from treadle.triggers.registry.registry import Registry
from treadle.triggers.schedules.desired_schedules import Wanted, schedule
from treadle.triggers.schedules.reconcile import Schedules
from treadle.triggers.schedules.tick_runs import is_tick

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARIS = ZoneInfo("Europe/Paris")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with service(Home(tmp_path_factory.mktemp("home"))) as found:
        yield found


async def times(here: Service, settings: ScheduleTrigger, begin: datetime, end: datetime) -> set[datetime]:
    """The server's times, `begin` and `end` included."""
    made = schedule(Wanted("clocks", "asked", settings, paused=True), "treadle", "")
    handle = await here.client.create_schedule("clocks.asked", made)
    request = ListScheduleMatchingTimesRequest(namespace=here.client.namespace, schedule_id=handle.id)
    request.start_time.FromDatetime(begin - timedelta(milliseconds=1))
    request.end_time.FromDatetime(end)
    found = await here.client.workflow_service.list_schedule_matching_times(request)
    await handle.delete()
    return {one.ToDatetime(UTC) for one in found.start_time}


@pytest.mark.parametrize(
    ("settings", "begin", "twice"),
    [
        ({"cron": "30 2 * * *", "timezone": "Europe/Paris"}, datetime(2026, 3, 28, tzinfo=UTC), 0),
        (
            {"cron": ["*/10 2-3 * * SUN", "5 0 29 MAR *"], "timezone": "Europe/Paris"},
            datetime(2026, 3, 28, tzinfo=UTC),
            0,
        ),
        ({"cron": "*/30 * * * *", "timezone": "Europe/Paris"}, datetime(2026, 10, 24, tzinfo=UTC), 2),
        ({"cron": "30 23 * * *", "timezone": "America/Santiago"}, datetime(2026, 4, 4, tzinfo=UTC), 0),
        ({"cron": "0 12 * * 0-3/3,7"}, datetime(2026, 1, 3, tzinfo=UTC), 0),
        ({"cron": "@weekly"}, datetime(2026, 1, 3, tzinfo=UTC), 0),
        ({"cron": "@monthly"}, datetime(2026, 1, 31, tzinfo=UTC), 0),
        ({"cron": "@yearly"}, datetime(2025, 12, 31, tzinfo=UTC), 0),
        ({"cron": "@hourly"}, datetime(2025, 12, 31, tzinfo=UTC), 0),
        ({"cron": "@midnight", "timezone": "Asia/Kolkata"}, datetime(2025, 12, 31, tzinfo=UTC), 0),
        ({"interval": "90m", "offset": "5m", "timezone": "Europe/Paris"}, datetime(2026, 3, 28, tzinfo=UTC), 0),
    ],
)
async def test_times_of_the_server_are_ticks_and_it_omits_some_of_a_repeated_hour(
    here: Service, settings: dict[str, Any], begin: datetime, twice: int
) -> None:
    found = read(document({"asked": {"type": "schedule", **settings}})).triggers["asked"]
    assert isinstance(found, ScheduleTrigger)
    end = begin + timedelta(days=3)
    said = await times(here, found, begin, end)
    ours = {when for minute in range(3 * 1440 + 1) if is_tick(found, when := begin + timedelta(minutes=minute))}
    assert said
    assert said <= ours
    assert len(ours - said) == twice
    assert not any(is_tick(found, when + timedelta(seconds=1)) for when in said)


async def test_backfill_begins_with_its_first_time_where_clocks_left_out_the_one_before(
    here: Service, tmp_path: Path
) -> None:
    registry, schedules = Registry(here.site.store, here.site.key), Schedules(here.client, "treadle", here.site.key)
    deploy(
        registry,
        document({"early": {"type": "schedule", "cron": "0 3 * * *", "timezone": "Europe/Paris"}}, "spring"),
        tmp_path,
    )
    registry.pause("spring", "early")
    await schedules.reconcile(registry)
    first = datetime(2026, 3, 29, 3, tzinfo=PARIS)
    await schedules.backfill("spring", "early", first, first + timedelta(minutes=5))
    while not (runs := [view.run async for view in here.runs.list_runs(10)]):  # noqa: ASYNC110  # no event signals it
        await asyncio.sleep(0.1)
    assert runs == ["spring.early.20260329T010000Z"]
    with pytest.raises(UsageError, match=r"spring\.early has no time in that range"):
        await schedules.backfill("spring", "early", first + timedelta(minutes=1), first + timedelta(hours=1))
