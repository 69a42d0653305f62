"""Functions for tests of a fold before a shuffle: some count live objects, some fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

MANY = 20_000


class Counted:
    """Records the maximum number of its live instances."""

    alive = most = 0

    def __init__(self) -> None:
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


def many(record: Any) -> Iterator[tuple[int, Counted]]:
    for index in range(MANY):
        yield index % 7, Counted()


def keep_first(a: Any, b: Any) -> Any:
    return a


def fails_at_last(record: int) -> tuple[str, int]:
    if record == 9:
        raise LookupError("the map fails, after the fold has")
    return "a", record


def pairs(record: int) -> tuple[str, int]:
    return "a", record


def no_pairs(record: int) -> Any:
    return ("a", record) if record < 5 else record


def triples(record: int) -> Any:
    return ("a", record) if record < 5 else ("a", record, record)


def refuses(a: int, b: int) -> int:
    raise ValueError("the fold fails")


def arrays(record: int) -> tuple[str, Any]:
    return "a", [np.zeros(2), record]


def writes(a: Any, b: Any) -> Any:
    a[0][0] = 1.0
    return a


def pair_up(a: Any, b: Any) -> Any:
    """Not associative, so it shows the shape of a fold."""
    return (a, b)
