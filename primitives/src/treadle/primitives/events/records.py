"""What triggers handle: a record, undecoded, and an event, decoded."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


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
