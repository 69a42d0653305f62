"""Triggers in Python: `wf.trigger("live", kafka("prod", ["orders"]), with_={"orders": trigger.events})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..expressions import Path
from .conversion import condition
from .formats import given
from .handles import Condition, NamedValues, Scalar, below

Overlap = Literal["skip", "bufferOne", "bufferAll", "cancelOther", "terminateOther", "allowAll"]


@dataclass(frozen=True)
class TriggerSource:
    """The source of a trigger's events."""

    options: dict[str, Any]


class Field(Scalar):
    """A value whose parts are values too: `event.data.order.id`, `event.data["order"]["id"]`, `event.data.lines[0]`."""

    def __getattr__(self, name: str) -> Field:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: int | str) -> Field:
        return Field(below(self.expression, key))


class EventHandle:
    """The current CloudEvent; in `with_` only of triggers that start a run for each event."""

    id = Scalar(Path(("event", "id")))
    source = Scalar(Path(("event", "source")))
    type = Scalar(Path(("event", "type")))
    subject = Scalar(Path(("event", "subject")))
    time = Scalar(Path(("event", "time")))
    datacontenttype = Scalar(Path(("event", "datacontenttype")))
    data = Field(Path(("event", "data")))
    extensions = Field(Path(("event", "extensions")))
    headers = Field(Path(("event", "headers")))
    """Headers of the Kafka record: `event.headers["x-shop"]`."""


class TriggerHandle:
    """The trigger, and its data for the run."""

    name = Scalar(Path(("trigger", "name")))
    events = Scalar(Path(("trigger", "events")))
    """The event or batch as data: for inputs of type dataset."""
    time = NamedValues(lambda name: Scalar(Path(("trigger", "time", name))))
    """The time: `.date`, `.hour`, ... (docs/triggers.md); for a schedule the nominal time in its timezone."""


event = EventHandle()
trigger = TriggerHandle()


def batch(
    *, max_events: int | None = None, max_wait: str | None = None, max_bytes: str | None = None
) -> dict[str, Any]:
    """Limits of consecutive events for one run."""
    return given(max_events=max_events, max_wait=max_wait, max_bytes=max_bytes)


def kafka(
    connection: str,
    topics: Sequence[str],
    *,
    format: Literal["cloudevents", "json", "raw"] | None = None,
    envelope: bool | None = None,
    filter: Condition | None = None,
    schema: Mapping[str, Any] | None = None,
    batch: Mapping[str, Any] | None = None,
    start_from: Literal["earliest", "latest"] | None = None,
    events: Literal["auto", "inline", "range", "capture"] | None = None,
    dedupe: Condition | None = None,
    max_active: int | None = None,
    dead_letter: Mapping[str, str] | None = None,
) -> TriggerSource:
    """Records of Kafka topics, through a connection that the profile names."""
    reading = given(format=format, envelope=envelope, batch=batch, start_from=start_from, events=events)
    rest = _judging(filter, schema, max_active) | given(dedupe=condition(dedupe), dead_letter=dead_letter)
    return TriggerSource({"type": "kafka", "connection": connection, "topics": list(topics), **reading, **rest})


def schedule(
    *,
    cron: str | Sequence[str] | None = None,
    interval: str | None = None,
    offset: str | None = None,
    timezone: str | None = None,
    overlap: Overlap | None = None,
    catchup_window: str | None = None,
    jitter: str | None = None,
) -> TriggerSource:
    """Times: `cron` or `interval`."""
    ticks = given(cron=cron if cron is None or isinstance(cron, str) else list(cron), interval=interval, offset=offset)
    how = given(timezone=timezone, overlap=overlap, catchup_window=catchup_window, jitter=jitter)
    return TriggerSource({"type": "schedule", **ticks, **how})


def objects(
    *,
    poll: Mapping[str, str] | None = None,
    kafka: Mapping[str, Any] | None = None,
    webhook: Mapping[str, str] | None = None,
    filter: Condition | None = None,
    schema: Mapping[str, Any] | None = None,
    start_from: Literal["earliest", "latest"] | None = None,
    max_active: int | None = None,
    dead_letter: Mapping[str, str] | None = None,
) -> TriggerSource:
    """New objects in a store: `poll={"uri": ..., "every": ...}`, or notifications."""
    ways = given(poll=poll, kafka=kafka, webhook=webhook, start_from=start_from, dead_letter=dead_letter)
    return TriggerSource({"type": "object", **ways, **_judging(filter, schema, max_active)})


def webhook(
    *,
    secret: str | None = None,
    scheme: Literal["standard", "github"] | None = None,
    format: Literal["cloudevents", "json"] | None = None,
    filter: Condition | None = None,
    schema: Mapping[str, Any] | None = None,
    dedupe: Condition | None = None,
    max_active: int | None = None,
    max_body: str | None = None,
) -> TriggerSource:
    """HTTP requests, signed with the named secret."""
    how = given(secret=secret, scheme=scheme, format=format, dedupe=condition(dedupe), max_body=max_body)
    return TriggerSource({"type": "webhook", **how, **_judging(filter, schema, max_active)})


def _judging(filter: Condition | None, schema: Mapping[str, Any] | None, max_active: int | None) -> dict[str, Any]:
    return given(filter=condition(filter), schema_=schema, max_active=max_active)
