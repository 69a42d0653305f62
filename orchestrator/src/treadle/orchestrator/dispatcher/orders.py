"""The orders and the progress of an activity: plain values, importable without the rest of the dispatcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct


class Orders(Struct, frozen=True):
    """The workflow's orders for an activity, besides the node."""

    bindings: dict[str, Any] = {}
    repair: tuple[str, ...] = ()
    limit: int = 0
    resumption: int = 1
    assume: Literal["", "done", "retry"] = ""
    since: float = 0.0
    """For a task group: the start of its node's first group, in seconds since the epoch."""


def environment(sealed: Mapping[str, Any], bindings: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of expressions. Values of a message never replace values sealed at submit."""
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
    """The task group that the counts are for. -1: the whole segment."""
    total: int = 0
    """For a group: the number of partitions of the segment."""
