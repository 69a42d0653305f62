"""Which jobs need a worker: those with a schema, and those on data that is not small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .pool import POOL

T = TypeVar("T")
SMALL = 1000
"""Values, with one more for each KiB of text. Expressions have at most as many steps as characters, and each step looks
at each value at most once: on small data an expression of 4,096 characters takes some 0.1 s at most."""

_LISTS, _TEXTS, _SCALARS = frozenset({list, tuple}), frozenset({str, bytes}), frozenset({bool, int, float, type(None)})


def evaluate_within_budget(job: Callable[..., T], *arguments: Any, always: bool = False) -> T:
    """The value of a job of `jobs`. `always`: in a worker, however small its arguments are.

    Waits for a worker, at most 2 s of its processor time and 30 s of time; not for an event loop's thread. Raises what
    the job raises, Unfit when it exceeds its processor time or memory, and EvaluatorLost when no worker answers.
    """
    if always or not is_small(arguments):
        value: T = POOL.run(job.__name__, arguments)
        return value
    return job(*arguments)


def is_small(value: Any, limit: int = SMALL) -> bool:
    """Whether a JSON value consists of at most `limit` values. Looks at no more than these."""
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
            return False  # its size is not known here
    return len(left) <= limit
