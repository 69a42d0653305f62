"""What work takes, in units that every executor has. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from treadle.executors.interface import Capabilities

GIGABYTE = 1 << 30
"""Bytes in the GB of GB-seconds (AWS Lambda pricing counts 1024 MB)."""


class Usage(Struct, frozen=True, rename="camel"):
    """Sums over attempts."""

    attempts: int = 0
    """Of partitions."""
    seconds: float = 0.0
    """That attempts took, one after the other."""
    cpu_seconds: float = 0.0
    gigabyte_seconds: float = 0.0
    """Seconds times the memory given: a function's size; elsewhere what the stage asks for, or else the peak."""
    puts: int = 0
    """Writes to the store: blocks, parts, reports, the ledger (PUT, COPY and POST)."""
    gets: int = 0
    """Reads from the store (GET and HEAD)."""
    moved: dict[str, int] = {}
    """Bytes of blocks that consumers got, by the kind of place (see `Outcome.read`)."""
    actions: int = 0
    """Of the orchestrator: a workflow, an activity or a heartbeat begun (Temporal Cloud, Actions)."""
    calls: int = 0
    """Of functions; 0: as many as attempts."""
    lists: int = 0
    """Pages of listings."""
    deletes: int = 0
    temporary: float = 0.0
    """GB-seconds of the temporary folder beyond what functions have for nothing."""

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
            self.calls + other.calls,
            self.lists + other.lists,
            self.deletes + other.deletes,
            self.temporary + other.temporary,
        )


TEMPORARY_FREE = 512 << 20
"""Bytes of /tmp that AWS Lambda does not charge for (AWS Lambda pricing, ephemeral storage)."""


def temporary_given(can: Capabilities, seconds: float) -> float:
    """GB-seconds that are charged for."""
    return max(0, can.temporary - TEMPORARY_FREE) / GIGABYTE * seconds


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


def memory_given(can: Capabilities, asked: int, peak: int = 0) -> int:
    """Bytes that an attempt had: of functions the smallest size that holds what its stage asks for, or the next where
    its peak tells that it grew; elsewhere what was asked for, or the peak."""
    if not can.sizes:
        return asked or peak
    reserve = can.sizes[-1] - can.memory_limit
    needed = max(asked + reserve if asked else 0, peak)
    return next((size for size in can.sizes if size >= needed), can.sizes[-1])
