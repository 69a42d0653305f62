"""Schedules equal the deployed triggers, and a nominal time means one run, for any caller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import ScheduleOverlapPolicy
from triggers.deployed import deploy, document, read

from treadle.client.submission import RUN_ID
from treadle.dsl.triggers import ScheduleTrigger
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store
from treadle.triggers.event_mapping import Unfit
from treadle.triggers.registry.registry import Registry
from treadle.triggers.schedules.desired_schedules import OVERLAPS, Found, Wanted, changes, schedule
from treadle.triggers.schedules.tick_runs import order_for, tick_run

NIGHTLY = {"type": "schedule", "cron": "0 2 * * *", "timezone": "Europe/Paris"}
TIMES = st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
NAMES = st.from_regex(r"[a-z][A-Za-z0-9_]{0,80}", fullmatch=True)


def trigger(**settings: Any) -> ScheduleTrigger:
    spec = read(document({"nightly": {"type": "schedule", **settings}}))
    found = spec.triggers["nightly"]
    assert isinstance(found, ScheduleTrigger)
    return found


@pytest.fixture
def registry() -> Registry:
    return Registry(Store.open("memory://"), b"k" * 32)


# -- the run of a tick


@given(NAMES, NAMES, TIMES, st.integers(-12, 14))
def test_a_nominal_time_has_one_id_in_every_timezone(workflow: str, name: str, when: datetime, hours: int) -> None:
    run = tick_run(workflow, name, when)
    assert RUN_ID.fullmatch(run)
    assert tick_run(workflow, name, when.astimezone(timezone(timedelta(hours=hours)))) == run
    assert tick_run(workflow, name, when + timedelta(seconds=1)) != run


def test_the_time_is_read_in_the_timezone_of_the_trigger(registry: Registry, tmp_path: Path) -> None:
    given = {"day": "${{ trigger.time.date }}", "hour": "${{ trigger.time.hour }}", "name": "${{ trigger.name }}"}
    inputs = {"day": {"type": "string"}, "hour": {"type": "integer"}, "name": {"type": "string"}}
    made = deploy(registry, document({"nightly": {**NIGHTLY, "with": given}}, inputs=inputs), tmp_path)
    order = order_for(made, "nightly", datetime(2026, 11, 20, 23, 30, tzinfo=UTC))
    assert order.inputs == {"day": "2026-11-21", "hour": 0, "name": "nightly"}
    assert (order.run, order.workflow, order.version) == ("orders.nightly.20261120T233000Z", "orders", 1)
    assert made.submission(order.run, order.inputs).inputs == order.inputs


def test_a_tick_that_cannot_be_mapped_says_why(registry: Registry, tmp_path: Path) -> None:
    made = deploy(registry, document({"nightly": {**NIGHTLY, "with": {"day": "${{ 1 / 0 }}"}}}), tmp_path)
    with pytest.raises(Unfit, match="with"):
        order_for(made, "nightly", datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match="no schedule 'other'"):
        order_for(made, "other", datetime(2026, 1, 1, tzinfo=UTC))


# -- requests to Temporal


def test_every_setting_reaches_temporal() -> None:
    settings = trigger(
        cron=["0 2 * * *", "30 4 * * 1-5"],
        timezone="Europe/Paris",
        overlap="bufferOne",
        catchupWindow="2h",
        jitter="30s",
    )
    made = schedule(Wanted("orders", "nightly", settings, paused=True), "queue", "owner")
    assert made.spec.cron_expressions == ["0 2 * * *", "30 4 * * 1-5"]
    assert (made.spec.time_zone_name, made.spec.jitter) == ("Europe/Paris", timedelta(seconds=30))
    assert made.policy.overlap == ScheduleOverlapPolicy.BUFFER_ONE
    assert made.policy.catchup_window == timedelta(hours=2)
    assert made.state.paused


def test_an_interval_has_its_offset() -> None:
    made = schedule(Wanted("orders", "nightly", trigger(interval="1h", offset="5m")), "queue", "owner")
    (interval,) = made.spec.intervals
    assert (interval.every, interval.offset) == (timedelta(hours=1), timedelta(minutes=5))
    assert not made.spec.cron_expressions


def test_there_are_six_policies_for_overlaps() -> None:
    assert set(OVERLAPS.values()) == set(ScheduleOverlapPolicy)
    for word in OVERLAPS:
        trigger(cron="0 2 * * *", overlap=word)


@pytest.mark.parametrize(
    "settings",
    [
        {"cron": "0 3 * * *"},
        {"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
        {"cron": "0 2 * * *", "overlap": "allowAll"},
        {"cron": "0 2 * * *", "jitter": "1s"},
        {"cron": "0 2 * * *", "catchupWindow": "2h"},
        {"interval": "1d"},
    ],
)
def test_a_changed_setting_updates_the_schedule(settings: dict[str, Any]) -> None:
    before = Wanted("orders", "nightly", trigger(cron="0 2 * * *"))
    after = Wanted("orders", "nightly", trigger(**settings))
    (change,) = changes([after], [Found(before.id, before.asked, False)])
    assert change.did == "updated"
    assert not changes([before], [Found(before.id, before.asked, False)])


def test_other_inputs_of_the_run_update_nothing() -> None:
    before, after = (Wanted("w", "t", trigger(cron="0 2 * * *", **{"with": {"a": value}})) for value in (1, 2))
    assert not changes([after], [Found(before.id, before.asked, False)])


WANTED = st.builds(
    Wanted,
    workflow=st.sampled_from("abc"),
    trigger=st.sampled_from("xy"),
    settings=st.sampled_from([trigger(cron="0 2 * * *"), trigger(interval="1h"), trigger(interval="2h")]),
    paused=st.booleans(),
)
SETS = st.lists(WANTED, unique_by=lambda one: one.id)


@given(SETS, SETS)
def test_changes_lead_to_the_wanted_schedules(before: list[Wanted], after: list[Wanted]) -> None:
    there = {one.id: Found(one.id, one.asked, one.paused) for one in before}
    wanted = {one.id: one for one in after}
    for change in changes(after, there.values()):
        if change.did == "deleted":
            del there[change.schedule]
            continue
        assert (change.did == "created") == (change.schedule not in there)
        one = wanted[change.schedule]
        there[one.id] = Found(one.id, one.asked, one.paused)
    assert there == {one.id: Found(one.id, one.asked, one.paused) for one in after}
    assert not changes(after, there.values()), "nothing is done twice"
