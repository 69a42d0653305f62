"""Records to events: CloudEvents 1.0 in structured and binary mode, JSON, raw bytes.

The Kafka binding: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
The JSON format: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import DataError
from .records import Event, Format, Record

MAX_RECORD = 4 * 2**20
"""Bytes of the value of one record; Kafka's own default is 1 MiB."""
RECORD_TYPE = "dev.treadle.kafka.record.v1"
"""`type` of events made from plain records."""
_STRUCTURED = "application/cloudevents"
_REQUIRED = ("id", "source", "type")
_OPTIONAL = ("subject", "time", "datacontenttype", "dataschema")
_NAME = re.compile(r"[a-z0-9]+")
_JSON = re.compile(r"(application|text)/json|[\w.-]+/[\w.-]+\+json")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class Undecodable(DataError):
    """The record is not a valid event: its producer must correct it. It becomes a dead letter with this reason."""


def decode(record: Record, format: Format, connection: str) -> Event:
    """Decode a record into its event; `connection` is the name of the cluster. Raises Undecodable."""
    if record.value is not None and len(record.value) > MAX_RECORD:
        raise Undecodable(f"the record has {len(record.value)} bytes; at most {MAX_RECORD} are read")
    if format == "cloudevents":
        event = _cloudevent(record)
    else:
        event = _wrapped(record, connection, parse_json(_value(record)) if format == "json" else _value(record))
    return replace(event, headers={name: _header_text(value) for name, value in record.headers})


def _header_text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _value(record: Record) -> bytes:
    if record.value is None:
        raise Undecodable("the record has no value (a tombstone)")
    return record.value


def event_time(event: Event, record: Record | None = None) -> datetime:
    """The time of the event: its own time, else the record's; UTC where neither names a zone."""
    if event.time is not None:
        return _moment(event.time)
    return point(record.time if record else 0.0)


def structured(document: bytes) -> Event:
    """A CloudEvent in the JSON format. Raises Undecodable."""
    found = parse_json(document)
    if not isinstance(found, dict):
        raise Undecodable("a CloudEvent in JSON is an object")
    attributes = {name: value for name, value in found.items() if name not in ("data", "data_base64")}
    if "data" in found and "data_base64" in found:
        raise Undecodable("the CloudEvent has data and data_base64")
    return event_of(attributes, _base64(found["data_base64"]) if "data_base64" in found else found.get("data"))


def binary(attributes: Mapping[str, Any], content_type: str | None, body: bytes | None) -> Event:
    """A CloudEvent whose attributes travelled beside its data (`ce_` or `ce-` taken off). Raises Undecodable."""
    about = {**attributes, "datacontenttype": content_type} if content_type else attributes
    return event_of(about, _data(content_type, body))


def event_of(attributes: Mapping[str, Any], data: Any) -> Event:
    """Build an event, checked against the specification. Raises Undecodable."""
    if attributes.get("specversion") != "1.0":
        raise Undecodable(f"the CloudEvent has specversion {attributes.get('specversion')!r}, not '1.0'")
    given = {name: value for name, value in attributes.items() if name != "specversion" and value is not None}
    known = {name: _text(name, given.pop(name, None), name in _REQUIRED) for name in (*_REQUIRED, *_OPTIONAL)}
    if known["time"] is not None:
        _moment(known["time"])
    if known["dataschema"] is not None:
        given["dataschema"] = known["dataschema"]
    for name, value in given.items():
        _check_extension(name, value)
    about: dict[str, Any] = {name: known[name] for name in ("subject", "time", "datacontenttype")}
    return Event(known["id"] or "", known["source"] or "", known["type"] or "", **about, data=data, extensions=given)


def _cloudevent(record: Record) -> Event:
    headers = {name.lower(): value for name, value in record.headers}
    content_type = _header("content-type", headers.get("content-type"))
    kind = (content_type or "").lower()
    if kind.startswith(_STRUCTURED):
        return _structured(record, kind)
    if "ce_specversion" in headers:
        given = {name[3:]: _header(name, value) for name, value in headers.items() if name.startswith("ce_")}
        return binary(given, content_type, record.value)
    value = _value(record)
    if content_type is None and value.lstrip()[:1] == b"{":  # many producers omit the header
        return structured(value)
    raise Undecodable("the record is no CloudEvent: neither its content-type nor ce_ headers say so")


def _structured(record: Record, content_type: str) -> Event:
    kind = content_type.partition(";")[0].strip()
    if kind != f"{_STRUCTURED}+json":
        raise Undecodable(f"CloudEvents as {kind} are not read; {_STRUCTURED}+json is")
    return structured(_value(record))


def _wrapped(record: Record, connection: str, data: Any) -> Event:
    return Event(
        f"{record.partition}/{record.offset}",
        f"kafka://{connection}/{record.topic}",
        RECORD_TYPE,
        subject=record.key.decode("utf-8", "backslashreplace") if record.key else None,
        time=rfc3339(record.time) if record.time else None,
        data=data,
    )


def _data(content_type: str | None, body: bytes | None) -> Any:
    """Decode the data: JSON as its value, text as text, all other types as bytes; without a type it is JSON."""
    if not body:
        return None
    kind = (content_type or "application/json").partition(";")[0].strip().lower()
    if _JSON.fullmatch(kind):
        return parse_json(body)
    if kind.startswith("text/"):
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise Undecodable(f"the data is no UTF-8: {error}") from None
    return body


def parse_json(text: bytes) -> Any:
    """Parse JSON. Raises Undecodable."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"it is no JSON: {error}") from None
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None


def _base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise Undecodable("data_base64 is no Base64") from None


def _header(name: str, value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise Undecodable(f"the header {name} is no UTF-8") from None


def _text(name: str, value: Any, required: bool) -> str | None:
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value:
        what = "is missing" if value is None else "is no text" if not isinstance(value, str) else "is empty"
        raise Undecodable(f"the CloudEvent's attribute {name} {what}")
    return value


def _check_extension(name: str, value: Any) -> None:
    if not _NAME.fullmatch(name):
        raise Undecodable(f"{name!r} is no name for a CloudEvent's attribute: lower-case letters and digits only")
    if not isinstance(value, str | bool | int):
        raise Undecodable(f"the CloudEvent's attribute {name} is neither text nor a whole number nor a boolean")


def _moment(text: str) -> datetime:
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
        moment.astimezone(UTC)  # fails near the ends of the calendar
        return moment
    except (ValueError, OverflowError):
        raise Undecodable(f"the CloudEvent's time {text!r} is not RFC 3339") from None


def point(seconds: float) -> datetime:
    """The moment; the epoch, which means unknown, if a producer sent a time outside the calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)


def rfc3339(seconds: float) -> str:
    """A time (seconds since the epoch) in the form used by events: UTC, in milliseconds."""
    return point(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
