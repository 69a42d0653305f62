"""k-means and logistic regression as gangs: all members have the same model after every step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context
from treadle.primitives.channels import BroadcastChannel, ReduceChannel, current_gang

Floats = NDArray[np.float64]


def draw(_: Iterator[int], rows: int, context: Context) -> Floats:
    """Rows of three features around three centers, and a label that depends on them."""
    centers = 4.0 * context.rng.integers(0, 3, size=(rows, 1))
    features = context.rng.normal(size=(rows, 3)) + centers
    labels = features.sum(axis=1) + context.rng.normal(size=rows) > 12
    return np.column_stack([features, labels])


def kmeans(rows: Floats, k: int, steps: int) -> Floats:
    """The centroids after `steps` steps (Lloyd 1982), which start from the first rows of the first member."""
    points = rows[:, :-1]
    with BroadcastChannel("seeds") as seeds, ReduceChannel("sums", np.add) as sums:
        if current_gang().rank == 0:
            centroids = points[:k]
            seeds.send(centroids)
        else:
            centroids = seeds.receive()
        for _ in range(steps):
            nearest = ((points[:, np.newaxis] - centroids) ** 2).sum(axis=2).argmin(axis=1)
            counts = np.bincount(nearest, minlength=k)
            parts = [np.bincount(nearest, column, minlength=k) for column in points.T]
            total = sums.all_reduce(np.column_stack([*parts, counts]))
            centroids = total[:, :-1] / np.maximum(total[:, -1:], 1)
    return centroids


def logistic(rows: Floats, steps: int, rate: float) -> Floats:
    """The weights, as one row, after `steps` steps along the gradient over the rows of all members."""
    features, labels = np.column_stack([rows[:, :-1], np.ones(len(rows))]), rows[:, -1]
    weights = np.zeros(features.shape[1])
    with ReduceChannel("gradients", np.add) as gradients:
        for _ in range(steps):
            errors = 1 / (1 + np.exp(-features @ weights)) - labels
            total = gradients.all_reduce(np.append(features.T @ errors, len(rows)))
            weights = weights - rate * total[:-1] / total[-1]
    return weights[np.newaxis]
