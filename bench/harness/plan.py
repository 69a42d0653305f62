"""The measured cells: one rival, one number of members and a list of tasks. `quick` limits them to minutes."""

from __future__ import annotations

from typing import NamedTuple

from harness.settings import RIVALS, SORTERS
from harness.work import Operation, Task

SMALL, LARGE = 100, 100_000_000
"""Bytes of the arrays."""
INTEGERS = 1_000_000
MESSAGE = 1024
SORTED_QUICK, SORTED_FULL = 256 << 20, 512 << 20
"""Bytes of records."""
_SLOW = ("storage file", "storage S3")
_HEAVY = ("Ray", "Dask")


class Cell(NamedTuple):
    rival: str
    members: int
    tasks: list[Task]
    skipped: str = ""
    """The reason why it is not measured."""


class Sort(NamedTuple):
    """Terasort end to end."""

    rival: str
    size: int
    rounds: int


def cells(*, quick: bool) -> list[Cell]:
    """Rival after rival for each number of members, so that compared figures are close in time."""
    found = []
    for members in (2, 8, 64, 16, 256) if quick else (2, 8, 16, 32, 64, 256):
        for rival in RIVALS:
            tasks = _tasks(rival, members, quick=quick)
            found.append(Cell(rival, members, tasks, _unfit(rival, members, quick=quick)))
    return found


def sorts(*, quick: bool) -> list[Sort]:
    """Terasort over S3 takes ten seconds."""
    size, rounds = (SORTED_QUICK, 3) if quick else (SORTED_FULL, 5)
    return [Sort(rival, size, 1 if quick and rival == "storage S3" else rounds) for rival in SORTERS]


def _tasks(rival: str, members: int, *, quick: bool) -> list[Task]:
    few = quick and (rival == "storage S3" or members == 256)
    barrier = Task("barrier", rounds=50 if not quick else 10 if few else 20, warm_up=3)
    if members == 256 or (members == 16 and quick):
        return [barrier]
    rounds = 30 if not quick else 5 if few else 10
    tasks = [
        Task("broadcast", SMALL, rounds, 2),
        Task("reduce", SMALL, rounds, 2),
        Task("shuffle", INTEGERS, 9 if not quick else 2 if few else 5),
        barrier,
    ]
    if members == 2:
        tasks.append(_round_trip(rival, quick=quick))
    if members <= 8 or not quick:
        return [*tasks, _large("broadcast", rival, quick=quick), _large("reduce", rival, quick=quick)]
    return tasks if rival in _SLOW else [*tasks, Task("broadcast", LARGE, 2)]


def _large(operation: Operation, rival: str, *, quick: bool) -> Task:
    """Each takes seconds over S3, so there are few."""
    if not quick:
        return Task(operation, LARGE, rounds=3 if rival in _SLOW else 7)
    if rival == "storage S3":
        return Task(operation, LARGE, rounds=1, warm_up=0)
    return Task(operation, LARGE, rounds=2 if rival in _SLOW else 5)


def _round_trip(rival: str, *, quick: bool) -> Task:
    count = 300 if rival in _SLOW else 2000
    return Task("round trip", MESSAGE, count if quick else 5 * count, 100)


def _unfit(rival: str, members: int, *, quick: bool) -> str:
    if rival in _HEAVY and members == 256:
        return "256 workers of it do not fit this kind of machine"
    if rival in _HEAVY and members > 8 and quick:
        return "left out of the short run: starting so many workers takes minutes"
    if rival == "storage S3" and members == 256 and quick:
        return "left out of the short run: it takes a minute"
    return ""
