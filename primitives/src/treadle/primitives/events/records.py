"""What triggers handle: a record, undecoded, and an event, decoded."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

Format: TypeAlias = Literal["cloudevents", "json", "raw"]
"""What the records of a topic are."""


class Record(Struct, frozen=True):
    """One record of a Kafka partition, undecoded."""

    topic: str
    topic_id: str
    """The topic's UUID: a topic deleted and made again is another one."""
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
    """Of the Kafka record: name -> text; null where it has no value or is no UTF-8. Of a repeated name the last."""


def as_item(event: Event, envelope: bool) -> Any:
    """What of an event is a record of a dataset: its data, or all of it, in the shape that expressions see."""
    return msgspec.structs.asdict(event) if envelope else event.data
