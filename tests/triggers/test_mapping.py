"""The results of rules on an event, and the names of runs."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from triggers.test_judge import version

from treadle.client.submission import RUN_ID
from treadle.primitives.events import Event, Record
from treadle.triggers.event_mapping import Rules, Unfit
from treadle.triggers.run_ids import event_run, hashed_run, record_run, replay_run, run_prefix

WHEN = datetime(2026, 1, 31, 2, 3, 4, tzinfo=UTC)
EVENT = Event(
    "7", "/shop", "order.created", data={"n": 5, "who": "ann"}, extensions={"tenant": "a"}, headers={"x-shop": "paris"}
)


def rules(**changes: Any) -> Rules:
    return Rules(version(1, {}, **changes), "live")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('event.type == "order.created"', True),
        ("event.data.n > 5", False),
        ('event.extensions.tenant == "a" && trigger.time.day == 31', True),
        ("event.subject == null", True),
        ('trigger.name == "live"', True),
        ('event.headers["x-shop"] in ["paris"] && startsWith(event.type, "order.")', True),
        ('has(event.headers.missing) || matches(event.data.who, "^b")', False),
    ],
)
def test_filter_sees_the_event_and_the_trigger(condition: str, holds: bool) -> None:
    assert rules(filter=condition).matches(EVENT, WHEN) is holds


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("event.data.missing > 1", "there is no event.data.missing"), ("event.data.n", "true or false|neither true")],
)
def test_filter_that_cannot_be_answered_is_a_reason(condition: str, reason: str) -> None:
    with pytest.raises(Unfit, match=f"filter: .*({reason})"):
        rules(filter=condition).matches(EVENT, WHEN)


def test_headers_are_mapped_to_inputs() -> None:
    given = rules(**{"with": {"shop": '${{ event.headers["x-shop"] }}'}})
    assert given.inputs(EVENT, WHEN) == {"shop": "paris"}


def test_schema_is_asked_of_matching_events_only() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    with pytest.raises(Unfit, match=r"schema: \$\.n: 5 is not of type 'string'"):
        rules(schema=schema).matches(EVENT, WHEN)
    assert not rules(schema=schema, filter="event.data.n > 5").matches(EVENT, WHEN)
    assert rules(schema={"type": "object", "properties": {"n": {"type": "integer"}}}).matches(EVENT, WHEN)


@pytest.mark.parametrize("value", [None, True, 1.5, "", [], {}])
def test_what_tells_events_apart_is_a_text_or_a_whole_number(value: Any) -> None:
    with pytest.raises(Unfit, match="neither text nor a whole number"):
        rules().dedupe("event.data", replace(EVENT, data=value), WHEN)
    assert [rules().dedupe("event.data", replace(EVENT, data=one), WHEN) for one in ("a", 0)] == ["a", 0]


def test_schema_is_never_fetched() -> None:
    with pytest.raises(Unfit, match="is not part of the schema"):
        rules(schema={"$ref": "http://127.0.0.1:1/x.json"}).matches(EVENT, WHEN)
    with pytest.raises(Unfit, match="schema: this is no JSON Schema: 'nonsense'"):
        rules(schema={"type": "nonsense"}).matches(EVENT, WHEN)


def test_inputs_keep_their_types() -> None:
    given = rules(
        **{"with": {"n": "${{ event.data.n }}", "text": "at ${{ trigger.time.date }}", "all": "${{ trigger.events }}"}}
    )
    assert given.inputs(EVENT, WHEN, [1, 2]) == {"n": 5, "text": "at 2026-01-31", "all": [1, 2]}
    with pytest.raises(Unfit, match="with: there is no event"):
        given.inputs(None, WHEN, [])


def test_bytes_are_text_to_expressions_where_they_are() -> None:
    assert rules(filter='event.data == "ä"').matches(Event("1", "s", "t", data="ä".encode()), WHEN)
    assert rules(filter="event.data == null").matches(Event("1", "s", "t", data=b"\xff"), WHEN)


def test_ids_of_runs_can_be_ids_of_runs() -> None:
    record = Record("orders", "-_6gy611olKRgObtsjZ4TH", 2, 17)
    ids = [record_run("w", "t", record), event_run("w", "t", EVENT), record_run("w" * 300, "t" * 300, record)]
    ids += [replay_run(one, 12) for one in ids]
    for one in ids:
        assert re.fullmatch(RUN_ID, one)
    assert len(set(ids)) == len(ids)


def test_ids_are_stable_because_another_id_would_start_a_second_run() -> None:
    assert record_run("w", "t", Record("orders", "u", 1, 11)) == "w.t.u.1.11"
    assert event_run("w", "t", EVENT) == "w.t.6c03254678fd6789631c42eaaa459a0a"


def test_ids_tell_every_part_of_an_identity_apart() -> None:
    record = Record("orders", "u", 1, 11)
    others = [Record("orders", "v", 1, 11), Record("orders", "u", 11, 1), Record("orders", "u", 1, 12)]
    assert record_run("w", "t", record) not in {record_run("w", "t", other) for other in others}
    assert record_run("w", "t", Record("other name", "u", 1, 11)) == record_run("w", "t", record)
    assert hashed_run("w", "t", "ab", "c") != hashed_run("w", "t", "a", "bc")
    assert hashed_run("w", "t", 1) != hashed_run("w", "t", "1")


def test_long_names_are_cut_and_still_told_apart() -> None:
    assert run_prefix("w" * 50, "t" * 49) == f"{'w' * 50}.{'t' * 49}."
    cut, whole = run_prefix("w" * 50, "t" * 50), "w" * 50 + "." + "t" * 50
    assert cut == f"{whole[:83]}-{hashlib.sha256(whole.encode()).hexdigest()[:16]}."
    assert len(cut) == 101
    assert cut != run_prefix("w" * 50, "t" * 51)


def test_private_identities_are_hashed() -> None:
    assert "ann@example.org" not in event_run("w", "t", Event("ann@example.org", "s", "t"))


def test_number_that_no_float_holds_is_a_reason() -> None:
    event = Event("1", "s", "t", data={"price": 10**400})
    with pytest.raises(Unfit, match="schema: a number is too large"):
        rules(schema={"properties": {"price": {"multipleOf": 0.01}}}).matches(event, WHEN)
