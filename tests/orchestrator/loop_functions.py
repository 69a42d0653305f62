"""User functions of loops over arrays: k-means, descent with averaged weights, and the addresses of partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result

Floats = NDArray[np.float64]
Partial = tuple[Floats, NDArray[np.int64]]
Place = tuple[int, int, int]
"""(process, partition, address)."""
_kept: list[Floats] = []


def cloud(_: Any, context: Context) -> Floats:
    """4,000 points: too many bytes to travel inline, or to be copied instead of mapped."""
    return context.rng.normal(size=(4_000, 3))


def some(values: Any, count: int) -> Floats:
    """The first points of the first partition."""
    return np.array(next(values.partitions())[:count])


def plus(record: int, *, other: int) -> int:
    return record + other


# -- k-means


def assign(points: Floats, centroids: Floats) -> Partial:
    nearest = ((points[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    sums = np.zeros_like(centroids)
    np.add.at(sums, nearest, points)
    return sums, np.bincount(nearest, minlength=len(centroids))


def add(a: Partial, b: Partial) -> Partial:
    return a[0] + b[0], a[1] + b[1]


def move(total: Partial, old: Floats) -> Result:
    moved = np.where(total[1][:, None] > 0, total[0] / np.maximum(total[1], 1)[:, None], old)
    return Result(moved, metrics={"shift": float(np.abs(moved - old).max())})


# -- descent


def descend(points: Floats, weights: Floats, rate: float, context: Context) -> Partial:
    """Learns in random order whether the coordinates of a point have a positive sum."""
    own = weights[0].copy()
    for chosen in np.split(points[context.rng.permutation(len(points))], 40):
        errors = 1 / (1 + np.exp(-chosen @ own)) - (chosen.sum(axis=1) > 0)
        own -= rate * (errors @ chosen) / len(chosen)
    return own[None], np.ones(1, np.int64)


# -- addresses of partitions


def look(points: Floats, context: Context) -> tuple[Place, ...]:
    """Keeps its input, so that no other object can get the same address."""
    _kept.append(points)
    return ((os.getpid(), context.partition, points.__array_interface__["data"][0]),)


def nothing(_: Any) -> tuple[Place, ...]:
    return ()


def join(a: tuple[Place, ...], b: tuple[Place, ...]) -> tuple[Place, ...]:
    return a + b


def behind(total: tuple[Place, ...], old: tuple[Place, ...]) -> tuple[Place, ...]:
    return old + total


def each(places: tuple[Place, ...]) -> Iterator[Place]:
    yield from places
