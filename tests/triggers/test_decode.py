"""Values that are events, and values that never are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.events import Record
from treadle.primitives.events.decode import MAX_RECORD, RECORD_TYPE, Undecodable, decode, event_time

EVENT = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.created"}


def record(value: bytes | None, key: bytes | None = None, **headers: bytes) -> Record:
    named = tuple((name.replace("__", "-"), text) for name, text in headers.items())
    return Record("orders", "uuid", 2, 17, key, value, named, 1_700_000_000.5)


def reason(given: Record, format: Literal["cloudevents", "json", "raw"] = "cloudevents") -> str:
    with pytest.raises(Undecodable) as caught:
        decode(given, format, "prod")
    return caught.value.message


def structured(**changes: Any) -> Record:
    document = {name: value for name, value in {**EVENT, **changes}.items() if value is not ...}
    return record(json.dumps(document).encode(), content__type=b"application/cloudevents+json; charset=utf-8")


def test_structured_event_is_read_with_its_attributes() -> None:
    given = structured(data={"n": 1}, subject="o1", time="2026-01-31T02:00:00.25+01:00", tenant="a", level=3)
    event = decode(given, "cloudevents", "prod")
    assert (event.id, event.source, event.type, event.subject) == ("7", "/shop", "order.created", "o1")
    assert event.data == {"n": 1}
    assert event.extensions == {"tenant": "a", "level": 3}
    assert event_time(event, given) == datetime(2026, 1, 31, 1, 0, 0, 250_000, UTC)


def test_event_without_the_header_is_read_when_its_content_has_the_form() -> None:
    assert decode(record(json.dumps(EVENT).encode()), "cloudevents", "prod").id == "7"


def test_binary_event_has_its_attributes_in_headers() -> None:
    about = {"ce_specversion": b"1.0", "ce_id": b"7", "ce_source": b"/shop", "ce_type": b"t", "ce_tenant": "ü".encode()}
    event = decode(record(b'{"n": 1}', content__type=b"application/json", **about), "cloudevents", "prod")
    assert (event.id, event.data, event.extensions) == ("7", {"n": 1}, {"tenant": "ü"})
    assert decode(record(b"text", content__type=b"text/plain", **about), "cloudevents", "prod").data == "text"
    assert decode(record(b"\xff", content__type=b"image/png", **about), "cloudevents", "prod").data == b"\xff"
    assert decode(record(None, **about), "cloudevents", "prod").data is None


def test_headers_of_a_record_are_texts_of_which_the_last_counts() -> None:
    headers = (("x-shop", b"a"), ("x-shop", "ü".encode()), ("raw", b"\xff"), ("none", None), ("X-Shop", b"b"))
    given = Record("orders", "uuid", 2, 17, None, b"{}", headers)
    for event in (decode(given, "json", "prod"), decode(given, "raw", "prod")):
        assert event.headers == {"x-shop": "ü", "raw": None, "none": None, "X-Shop": "b"}
    assert decode(structured(), "cloudevents", "prod").headers == {
        "content-type": "application/cloudevents+json; charset=utf-8"
    }


def test_plain_records_are_wrapped() -> None:
    given = record(b'{"n": 1}', key=b"k1")
    event = decode(given, "json", "prod")
    assert (event.id, event.source, event.type, event.subject) == ("2/17", "kafka://prod/orders", RECORD_TYPE, "k1")
    assert event.data == {"n": 1}
    assert event.time == "2023-11-14T22:13:20.500Z"
    assert decode(given, "raw", "prod").data == b'{"n": 1}'


def test_data_in_base64_are_bytes() -> None:
    assert decode(structured(data_base64="AP8="), "cloudevents", "prod").data == b"\x00\xff"
    assert "no Base64" in reason(structured(data_base64="?"))
    assert "data and data_base64" in reason(structured(data=1, data_base64="AP8="))


@pytest.mark.parametrize("name", ["id", "source", "type"])
def test_required_attribute_that_is_missing_is_named(name: str) -> None:
    assert f"attribute {name} is missing" in reason(structured(**{name: ...}))
    assert f"attribute {name} is empty" in reason(structured(**{name: ""}))
    assert f"attribute {name} is no text" in reason(structured(**{name: 5}))


@pytest.mark.parametrize("version", ["0.3", "2.0", 1.0, ..., None])
def test_other_versions_of_the_specification_are_refused(version: Any) -> None:
    assert "specversion" in reason(structured(specversion=version))


@pytest.mark.parametrize("time", [2.0**53, -(2.0**53), 1e300, float("inf"), float("nan")])
def test_a_time_that_a_producer_made_up_is_none(time: float) -> None:
    """Kafka accepts any number as the time of a record."""
    given = msgspec.structs.replace(record(b"{}"), time=time)
    event = decode(given, "json", "prod")
    assert event.time == "1970-01-01T00:00:00.000Z"
    assert event_time(event, given) == event_time(msgspec.structs.replace(event, time=None), given)
    assert event_time(event, given) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "time",
    [
        "yesterday",
        "2026-01-31",
        "2026-13-31T00:00:00Z",
        "2026-01-31 00:00:00Z",
        "20260131",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_time_that_is_not_rfc_3339_is_refused(time: str) -> None:
    assert "RFC 3339" in reason(structured(time=time))


def test_records_without_an_event_are_refused_with_the_reason() -> None:
    assert "tombstone" in reason(record(None))
    assert "tombstone" in reason(record(None), "json")
    assert "tombstone" in reason(record(None), "raw")
    assert "no CloudEvent" in reason(record(b"[1]"))
    assert "no JSON" in reason(record(b"oops"), "json")
    assert "no JSON" in reason(record(b"\xff"), "json")
    assert "nested too deeply" in reason(record(b"[" * 100_000 + b"]" * 100_000), "json")
    assert "at most" in reason(record(b"x" * (MAX_RECORD + 1)), "raw")
    assert "+avro" in reason(record(b"x", content__type=b"application/cloudevents+avro"))
    assert "no UTF-8" in reason(record(b"{}", ce_specversion=b"\xff"))
    assert "lower-case" in reason(structured(**{"Not-Allowed": "x"}))
    assert "neither text" in reason(structured(extension={"a": 1}))


@given(
    st.binary(max_size=200) | st.none(),
    st.lists(st.tuples(st.sampled_from(["content-type", "ce_specversion", "ce_id", "x"]), st.binary(max_size=30))),
    st.sampled_from(["cloudevents", "json", "raw"]),
)
def test_any_bytes_are_an_event_or_undecodable(
    value: bytes | None, headers: list[tuple[str, bytes]], format: Literal["cloudevents", "json", "raw"]
) -> None:
    try:
        event = decode(Record("t", "u", 0, 0, None, value, tuple(headers)), format, "c")
    except Undecodable:
        return
    assert event.id
    assert event.source
