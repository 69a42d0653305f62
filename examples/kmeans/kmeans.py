"""Functions of the k-means example (Lloyd 1982; seeding after Arthur and Vassilvitskii 2007)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result

Floats = NDArray[np.float64]
Partial = tuple[Floats, NDArray[np.int64]]


def to_array(points: Floats) -> Floats:
    """The partition as float64, in memory."""
    return np.array(points, dtype=np.float64)


def plus_plus(values: Any, k: int, context: Context) -> Floats:
    """k starting centroids, each drawn by its squared distance to the earlier ones."""
    points = np.concatenate([part for part in values.partitions() if len(part)])
    chosen = [points[context.rng.integers(len(points))]]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < k:
        nearest = np.minimum(nearest, ((points - chosen[-1]) ** 2).sum(axis=1))
        total = nearest.sum()
        weights = nearest / total if total > 0 else None
        chosen.append(points[context.rng.choice(len(points), p=weights)])
    return np.array(chosen)


def assign(points: Floats, centroids: Floats) -> Partial:
    """Sums (k, d) and counts (k,) of the points nearest to each centroid."""
    distances = points @ (-2 * centroids.T)  # without |point|^2, the same for every centroid
    distances += (centroids**2).sum(axis=1)
    nearest = distances.argmin(axis=1)
    k, dimensions = centroids.shape
    sums = np.stack([np.bincount(nearest, points[:, j], minlength=k) for j in range(dimensions)], axis=1)
    return sums, np.bincount(nearest, minlength=k)


def add_partials(a: Partial, b: Partial) -> Partial:
    return a[0] + b[0], a[1] + b[1]


def new_centroids(total: Partial, old: Floats) -> Result:
    """The means. A centroid without points stays where it was."""
    sums, counts = total
    moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], old)
    return Result(moved, metrics={"shift": float(np.abs(moved - old).max())})


def as_rows(centroids: Floats) -> Iterator[tuple[int, int, float]]:
    """(centroid, dimension, value) of every number of the model."""
    for index, row in enumerate(centroids):
        for dimension, value in enumerate(row):
            yield index, dimension, float(value)
