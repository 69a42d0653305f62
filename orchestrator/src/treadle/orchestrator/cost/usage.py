"""What work takes, in units that every executor has. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from treadle.executors.functions.sizes import OVERHEAD
from treadle.executors.interface import Capabilities

GIGABYTE = 1 << 30
"""Bytes in the GB of GB-seconds (AWS Lambda pricing counts 1024 MB)."""


class Usage(Struct, frozen=True, rename="camel"):
    """Sums over attempts."""

    attempts: int = 0
    """Of partitions; each was at most one call of a function."""
    seconds: float = 0.0
    """That attempts took, one after the other."""
    cpu_seconds: float = 0.0
    gigabyte_seconds: float = 0.0
    """Seconds times the memory given: a function's size; elsewhere what the stage asks for, or else the peak."""
    puts: int = 0
    """Objects written to the store: blocks, parts, reports, the ledger."""
    gets: int = 0
    """Reads from the store."""
    moved: dict[str, int] = {}
    """Bytes of blocks that consumers got, by the kind of place (see `Outcome.read`)."""
    actions: int = 0
    """Of the orchestrator: a workflow, an activity or a heartbeat begun (Temporal Cloud, Actions)."""

    def __add__(self, other: Usage) -> Usage:
        places = sorted({*self.moved, *other.moved})
        return Usage(
            self.attempts + other.attempts,
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.gigabyte_seconds + other.gigabyte_seconds,
            self.puts + other.puts,
            self.gets + other.gets,
            {place: self.moved.get(place, 0) + other.moved.get(place, 0) for place in places},
            self.actions + other.actions,
        )


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


def memory_given(can: Capabilities, asked: int, peak: int = 0) -> int:
    """Bytes that an attempt had: of functions the smallest size that holds what its stage asks for, or the next where
    its peak tells that it grew; elsewhere what was asked for, or the peak."""
    if not can.sizes:
        return asked or peak
    needed = max(asked + OVERHEAD if asked else 0, peak)
    return next((size for size in can.sizes if size >= needed), can.sizes[-1])
