"""Functions of the gang example: data-parallel gradient descent (as Dean et al., NIPS 2012, in lock step)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result
from treadle.primitives.channels import ReduceChannel

Floats = NDArray[np.float64]
TRUTH = np.array([2.0, -1.0, 0.5])


def draw(_: Iterator[int], rows: int, context: Context) -> Floats:
    """Rows of three features and a value that depends on them by TRUTH, with noise."""
    features = context.rng.normal(size=(rows, len(TRUTH)))
    return np.column_stack([features, features @ TRUTH + context.rng.normal(scale=0.1, size=rows)])


def train(rows: Floats, steps: int, rate: float) -> Floats:
    """The weights that all members share, as one row. Each step follows the gradient over the rows of all members."""
    weights = np.zeros(rows.shape[1] - 1)
    with ReduceChannel("gradients", np.add) as gradients:
        for _ in range(steps):
            total = gradients.all_reduce(gradient(rows, weights))
            weights = weights - rate * total[:-1] / total[-1]
    return weights[np.newaxis]


def gradient(rows: Floats, weights: Floats) -> Floats:
    """The gradient of half the squared error, summed over the rows, followed by the number of rows."""
    features, values = rows[:, :-1], rows[:, -1]
    return np.append(features.T @ (features @ weights - values), len(rows))


def agreed(weights: Iterator[Floats]) -> Result:
    """The weights, which are the same at every member, and their distance from the truth."""
    first, *others = weights
    assert all(np.array_equal(first, other) for other in others)
    return Result([float(weight) for weight in first], metrics={"error": float(np.abs(first - TRUTH).max())})
