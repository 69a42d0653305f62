"""The usage of work, in units that are the same on every executor. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from treadle.executors.interface import Capabilities

GIGABYTE = 1 << 30
"""Bytes in the GB of GB-seconds (AWS Lambda pricing counts 1024 MB)."""


class Usage(Struct, frozen=True, rename="camel"):
    """Sums over attempts."""

    attempts: int = 0
    """Attempts at partitions."""
    seconds: float = 0.0
    """The sum of the attempts' durations."""
    cpu_seconds: float = 0.0
    gigabyte_seconds: float = 0.0
    """Seconds times memory: a function's size; on other executors the stage's request, or else the peak."""
    puts: int = 0
    """Writes to the store: blocks, parts, reports, the ledger (PUT, COPY and POST)."""
    gets: int = 0
    """Reads from the store (GET and HEAD)."""
    moved: dict[str, int] = {}
    """Kind of place -> bytes of blocks that consumers read from there (see `Outcome.read`)."""
    actions: int = 0
    """Actions of the orchestrator: a workflow, an activity or a heartbeat (Temporal Cloud, Actions)."""
    calls: int = 0
    """Calls of functions. 0: one for each attempt."""
    lists: int = 0
    """Pages of listings."""
    deletes: int = 0
    temporary: float = 0.0
    """GB-seconds of the temporary folder beyond its free part."""

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
    """The GB-seconds charged."""
    return max(0, can.temporary - TEMPORARY_FREE) / GIGABYTE * seconds


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


def memory_given(can: Capabilities, asked: int, peak: int = 0) -> int:
    """Bytes of memory that an attempt had.

    On functions it is the smallest size that holds the stage's request, or the next size if the peak shows that the
    attempt grew. On other executors it is the request, or else the peak.
    """
    if not can.sizes:
        return asked or peak
    reserve = can.sizes[-1] - can.memory_limit
    needed = max(asked + reserve if asked else 0, peak)
    return next((size for size in can.sizes if size >= needed), can.sizes[-1])
