"""Functions of the Monte Carlo pi example."""

from __future__ import annotations

from treadle.executors import Context, Result

Hits = tuple[int, int]


def throw(_: int, points: int, context: Context) -> Hits:
    """(points inside the quarter circle, points thrown)."""
    x, y = context.rng.random((2, points))
    return int((x * x + y * y < 1).sum()), points


def add(a: Hits, b: Hits) -> Hits:
    return a[0] + b[0], a[1] + b[1]


def estimate(hits: Hits) -> Result:
    pi = 4 * hits[0] / hits[1]
    return Result(pi, metrics={"pi": pi})
