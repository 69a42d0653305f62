"""What an activity is told, and what it shows: plain values, for who has nothing else of the dispatcher to load."""

from __future__ import annotations

from collections.abc import Mapping
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


def environment(sealed: Mapping[str, Any], bindings: Mapping[str, Any]) -> dict[str, Any]:
    """What expressions read: values of a message never replace those that were sealed at submit."""
    return {**bindings, **sealed}


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
