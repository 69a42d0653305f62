"""Decides which jobs need a worker: those with a schema, and those on large data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .pool import POOL

T = TypeVar("T")
SMALL = 1000
"""Limit of values in small data, with one more for each KiB of text. An expression takes at most as many steps as it
has characters, and each step reads each value at most once. So on small data an expression of 4,096 characters takes at
most about 0.1 s.
"""

_LISTS, _TEXTS, _SCALARS = frozenset({list, tuple}), frozenset({str, bytes}), frozenset({bool, int, float, type(None)})


def evaluate_within_budget(job: Callable[..., T], *arguments: Any, always: bool = False) -> T:
    """Return the value of a job of `jobs`. `always`: use a worker even for small arguments.

    Waits for a worker, at most 2 s of its processor time and 30 s of time, so it must not run in an event loop's
    thread. Raises the errors of the job, Unfit when it exceeds its processor time or memory, and EvaluatorLost when no
    worker answers.
    """
    if always or not is_small(arguments):
        value: T = POOL.run(job.__name__, arguments)
        return value
    return job(*arguments)


def is_small(value: Any, limit: int = SMALL) -> bool:
    """Return whether a JSON value consists of at most `limit` values. Reads at most that many."""
    left = [value]
    for one in left:
        kind = type(one)
        if kind is dict:
            if len(left) + len(one) > limit:
                return False
            left += one.values()
        elif kind in _LISTS:
            if len(left) + len(one) > limit:
                return False
            left += one
        elif kind in _TEXTS:
            limit -= len(one) >> 10
        elif kind not in _SCALARS:
            return False  # its size is unknown
    return len(left) <= limit
