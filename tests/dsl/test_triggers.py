"""Triggers in the language: their form in Python, their normal form, cron, and the names in their expressions."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.dsl import Workflow, batch, event, expr, jsonl, kafka, objects, schedule, trigger, webhook
from treadle.dsl.document.workflow_files import load
from treadle.dsl.expressions import Type, evaluate, parse
from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise, read_normalised, without_triggers
from treadle.dsl.trigger_time import MOMENT, moment
from treadle.dsl.triggers import KafkaTrigger, ScheduleTrigger
from treadle.dsl.validation.cron import CronError, parse_cron
from treadle.dsl.validation.validate import validate
from treadle.primitives.errors import UsageError

GOOD = Path(__file__).parent / "golden" / "good" / "triggers.yaml"

ORDERS = """
apiVersion: treadle/v1
name: orders_etl
inputs: {orders: {type: dataset, required: true}, day: {type: string, default: ""}}
triggers:
  live:
    type: kafka
    connection: prod_kafka
    topics: [orders.v1]
    format: cloudevents
    filter: event.type == "com.acme.order.created.v1" && event.data.amount > 3
    batch: {maxEvents: 5000, maxWait: 30s}
    startFrom: earliest
    maxActive: 8
    deadLetter: {topic: orders.v1.dlt}
    with: {orders: "${{ trigger.events }}"}
  nightly:
    type: schedule
    cron: "0 2 * * *"
    timezone: Europe/Paris
    overlap: skip
    catchupWindow: 1h
    with: {orders: {uri: "s3://lake/orders/dt=${{ trigger.time.date }}/*.jsonl", format: jsonl}}
  files:
    type: object
    poll: {uri: "s3://lake/in/", every: 30s}
    filter: event.data.size > 0
    with: {orders: {uri: "${{ event.data.uri }}", format: jsonl}, day: "${{ trigger.name }}"}
  hook:
    type: webhook
    secret: partner
    dedupe: event.data.number
    schema: {type: object, required: [number]}
    with: {orders: {items: ["${{ event.data }}"]}}
stages:
  parse: {type: map, input: inputs.orders, uses: orders:parse, with: {day: "${{ inputs.day }}"}}
"""


def orders() -> Workflow:
    etl = Workflow("orders_etl")
    given_orders = etl.input("orders", "dataset", required=True)
    day = etl.input("day", str, default="")
    etl.map("parse", given_orders, uses="orders:parse", with_={"day": day})
    live = kafka(
        "prod_kafka",
        ["orders.v1"],
        format="cloudevents",
        filter=(event.type == "com.acme.order.created.v1") & (event.data.amount > 3),
        batch=batch(max_events=5000, max_wait="30s"),
        start_from="earliest",
        max_active=8,
        dead_letter={"topic": "orders.v1.dlt"},
    )
    nightly = schedule(cron="0 2 * * *", timezone="Europe/Paris", overlap="skip", catchup_window="1h")
    files = objects(poll={"uri": "s3://lake/in/", "every": "30s"}, filter=event.data["size"] > 0)
    hook = webhook(secret="partner", dedupe=event.data.number, schema={"type": "object", "required": ["number"]})
    etl.trigger("live", live, with_={"orders": trigger.events})
    by_day = jsonl(expr("s3://lake/orders/dt={trigger.time.date}/*.jsonl"))
    etl.trigger("nightly", nightly, with_={"orders": by_day.options})
    etl.trigger("files", files, with_={"orders": {"uri": event.data.uri, "format": "jsonl"}, "day": trigger.name})
    etl.trigger("hook", hook, with_={"orders": {"items": [event.data]}})
    return etl


def test_document_and_its_python_twin_normalise_to_the_same_spec() -> None:
    assert validate(load(ORDERS)) == []
    assert normalise(orders().spec()) == normalise(load(ORDERS).require())
    assert normalise(load(orders().to_yaml()).require()) == normalise(orders().spec())


def test_wrong_option_of_a_trigger_is_refused_where_it_is_written() -> None:
    wf = Workflow("w")
    with pytest.raises(UsageError, match=r"trigger 'a'.*max_active"):
        wf.trigger("a", kafka("k", ["t"], max_active=0))
    with pytest.raises(UsageError, match="only one of them"):
        wf.trigger("a", schedule())
    wf.trigger("a", schedule(interval="1h"))
    with pytest.raises(UsageError, match="already a trigger 'a'"):
        wf.trigger("a", schedule(interval="2h"))


# -- normal form -------------------------------------------------------------------------------------------------


def changed(**triggers: Any) -> Spec:
    data = json.loads(json.dumps(load(ORDERS).data))
    data["triggers"] = {**data["triggers"], **triggers}
    return Spec.model_validate(data, by_alias=True, by_name=False)


@pytest.mark.parametrize("uri", ["s3://data[0-9]/in", "s3://[a", "s3://data/*.csv"])
def test_prefix_with_wildcards_is_reported(uri: str) -> None:
    stages = "stages: {a: {type: map, input: {range: 1}, uses: m:f}}\n"
    triggers = f"triggers: {{t: {{type: object, poll: {{uri: '{uri}'}}}}}}\n"
    (found,) = validate(load(f"apiVersion: treadle/v1\nname: w\n{triggers}{stages}"))
    assert (found.code, found.message) == ("T705", "a prefix has no wildcards")


def test_normal_form_says_the_defaults_of_triggers() -> None:
    said = normalise(load(ORDERS).require())["triggers"]
    assert said["live"]["dedupe"] == "offset"
    assert said["live"]["batch"]["maxBytes"] == "8MiB"
    assert said["nightly"]["overlap"] == "skip"
    assert said["hook"]["maxBody"] == "1MiB"
    assert "jitter" not in said["nightly"]


def test_order_and_spelling_of_triggers_mean_nothing() -> None:
    spec = load(ORDERS).require()
    turned = spec.model_copy(update={"triggers": dict(reversed(spec.triggers.items()))})
    assert json.dumps(normalise(turned)) == json.dumps(normalise(spec))
    spaced = load(ORDERS.replace("event.data.amount > 3", "event.data.amount>3").replace("1h", "60m")).require()
    assert normalise(spaced) == normalise(spec)


def test_normal_form_reads_back_as_itself() -> None:
    for text in (ORDERS, GOOD.read_text("utf-8")):
        spec = load(text).require()
        normal = json.loads(json.dumps(normalise(spec)))
        assert normalise(read_normalised(normal)) == normal


def test_pinned_document_has_no_triggers() -> None:
    one, other = load(ORDERS).require(), changed(live={"type": "schedule", "interval": "1h"})
    assert normalise(one) != normalise(other)
    assert normalise(without_triggers(one)) == normalise(without_triggers(other))
    assert "triggers" not in normalise(without_triggers(one))


def test_schema_of_an_event_is_kept_as_it_was_written() -> None:
    schema = {"type": "object", "properties": {"a": {"const": "${{ inputs.x }}"}}}
    spec = changed(live={"type": "kafka", "connection": "k", "topics": ["t"], "schema": schema})
    assert normalise(spec)["triggers"]["live"]["schema"] == schema


# -- cron --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "minutes", "hours", "weekdays"),
    [
        ("0 2 * * *", {0}, {2}, set(range(8))),
        ("*/15 9-17/4 * * MON-FRI", {0, 15, 30, 45}, {9, 13, 17}, {1, 2, 3, 4, 5}),
        ("5,35 0 * * sun,7", {5, 35}, {0}, {0, 7}),
        (" @weekly", {0}, {0}, {0}),
    ],
)
def test_cron_fields_are_read(text: str, minutes: set[int], hours: set[int], weekdays: set[int]) -> None:
    found = parse_cron(text)
    assert [set(found[index]) for index in (0, 1, 4)] == [minutes, hours, weekdays]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "-1 * * * *",
        "*/0 * * * *",
        "5/2 * * * *",
        "1,,2 * * * *",
        "1- * * * *",
        "0 0 30 2 *",
        "0 0 31 4,11 *",
        "0 0 1 * 1",
        "0 0 L * *",
        "0 0 * * MON#1",
        "TZ=UTC 0 0 * * *",
        "@every 1h",
        "٣ * * * *",
    ],
)
def test_cron_that_cannot_be_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(text)
    assert 0 <= caught.value.start <= caught.value.stop <= len(text) or text == ""


@given(st.text("0123456789*/-, @JANMO", max_size=20))
def test_cron_reader_ends_with_values_or_a_reason(text: str) -> None:
    with suppress(CronError):
        found = parse_cron(text)
        assert all(found)


# -- times -------------------------------------------------------------------------------------------------------


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9998, 1, 1)), st.integers(-14, 14))
@example(datetime(3059, 1, 1, 0, 0, 0, 999997), 0)  # as a float it is the next second
def test_moment_has_a_value_of_its_type_for_every_name(when: datetime, hours: int) -> None:
    value = moment(when.replace(tzinfo=timezone(timedelta(hours=hours))))
    types = {str: Type.STRING, int: Type.INT}
    assert {name: types[type(each)] for name, each in value.items()} == MOMENT
    assert datetime.fromisoformat(str(value["iso"])).timestamp() == value["epoch"]
    assert str(value["iso"]).startswith(str(value["date"]))


def test_moment_is_read_in_its_own_timezone() -> None:
    from zoneinfo import ZoneInfo

    when = datetime(2026, 3, 28, 23, 30, tzinfo=UTC).astimezone(ZoneInfo("Europe/Paris"))
    env = {"trigger": {"time": moment(when)}}
    assert evaluate(parse("trigger.time.date"), env) == "2026-03-29"
    assert evaluate(parse("trigger.time.weekday == 7 && trigger.time.minute == 30"), env) is True
    assert moment(when)["iso"] == "2026-03-29T00:30:00+01:00"


def test_models_are_chosen_by_their_type() -> None:
    triggers = load(ORDERS).require().triggers
    assert isinstance(triggers["live"], KafkaTrigger)
    assert isinstance(triggers["nightly"], ScheduleTrigger)
