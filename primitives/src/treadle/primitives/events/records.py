"""The values that triggers handle: a record, undecoded, and an event, decoded."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

Format: TypeAlias = Literal["cloudevents", "json", "raw"]
"""The content of a topic's records."""


class Record(Struct, frozen=True):
    """One record of a Kafka partition, undecoded."""

    topic: str
    topic_id: str
    """The topic's UUID: a topic that is deleted and created again gets a new UUID."""
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time: float = 0.0
    """Seconds since the epoch; 0: unknown."""


class Event(Struct, frozen=True):
    """One CloudEvent, decoded."""

    id: str
    source: str
    type: str
    subject: str | None = None
    time: str | None = None
    """RFC 3339."""
    datacontenttype: str | None = None
    data: Any = None
    extensions: dict[str, Any] = {}
    """Every other attribute."""
    headers: dict[str, str | None] = {}
    """Headers of the Kafka record: name -> text; null for no value or invalid UTF-8. The last of a repeated name
    counts."""


def as_item(event: Event, envelope: bool) -> Any:
    """The record of a dataset that an event becomes: its data, or the whole event in the shape that expressions see."""
    return msgspec.structs.asdict(event) if envelope else event.data
