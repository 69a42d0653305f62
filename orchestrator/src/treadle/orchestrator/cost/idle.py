"""The cost of resident workers while they wait, from the first task of a run on them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from .bill import BillLine
from .usage import GIGABYTE, Usage


class Worked(NamedTuple):
    """An attempt on a resident worker."""

    slot: str
    begin: float
    """Seconds since the epoch, by the worker's clock."""
    end: float
    memory: int
    """The worker's memory in bytes."""


def idle_line(executor: str, kind: str, attempts: Iterable[Worked], kept: float, now: float) -> BillLine | None:
    """The idle time of one executor's workers between a run's attempts and after them. None: no worker has waited.

    A worker without a task lives for `kept` seconds. A longer gap means that this worker ended and another began.
    Tasks of other runs in a gap are not visible here, so two runs may both be charged for the same second.
    """
    waited = [(seconds, memory) for seconds, memory in _gaps(attempts, kept, now) if seconds > 0]
    if not waited:
        return None
    seconds = sum(seconds for seconds, _ in waited)
    given = sum(seconds * memory for seconds, memory in waited) / GIGABYTE
    return BillLine(f"(idle, {executor})", executor, kind, Usage(seconds=seconds, gigabyte_seconds=given))


def _gaps(attempts: Iterable[Worked], kept: float, now: float) -> Iterator[tuple[float, int]]:
    """(seconds, memory) of the gap after each attempt on each slot."""
    slots: dict[str, list[Worked]] = defaultdict(list)
    for one in sorted(attempts, key=lambda one: one.begin):
        slots[one.slot].append(one)
    for worked in slots.values():
        for one, following in pairwise(worked):
            yield min(following.begin - one.end, kept), one.memory
        yield min(now - worked[-1].end, kept), worked[-1].memory
