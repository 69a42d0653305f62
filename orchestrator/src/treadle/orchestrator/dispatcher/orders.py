"""What an activity is told, and what it shows: plain values, for who has nothing else of the dispatcher to load."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Orders(Struct, frozen=True):
    """What the workflow tells an activity beside the node itself."""

    bindings: dict[str, Any] = {}
    repair: tuple[str, ...] = ()
    limit: int = 0
    resumption: int = 1
    assume: Literal["", "done", "retry"] = ""
    since: float = 0.0
    """Of a task group: when the first one of its node began, in seconds since the epoch."""


class Progress(Struct, frozen=True):
    """Counts for heartbeats and `watch`."""

    segment: str
    partitions: int
    committed: int
    failed: int
    retried: int
    running: int
    size: int
    """Bytes of blocks and parts so far."""
    group: int = -1
    """A task group of the segment, whose partitions these are; -1: all of them are."""
    total: int = 0
    """Of a group: partitions of the segment."""
