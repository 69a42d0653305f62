"""How far a segment is. For all who look, so it imports nothing of what runs one."""

from __future__ import annotations

from msgspec import Struct


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
