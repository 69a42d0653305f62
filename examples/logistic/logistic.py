"""Functions of the logistic regression example (local SGD with averaged models: Zinkevich et al., NIPS 2010)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result

Floats = NDArray[np.float64]
Partial = tuple[Floats, float, int]
"""Weights times rows, sum of the loss over the rows, rows."""


def to_array(rows: Floats) -> Floats:
    """The partition as float64, in memory."""
    return np.array(rows, dtype=np.float64)


def zeros(values: Any) -> Floats:
    """A weight for each feature, and a bias."""
    return np.zeros(next(values.partitions()).shape[1])


def descend(rows: Floats, weights: Floats, rate: float, batch: int, context: Context) -> Partial:
    """One pass over the partition in random order, with a step for every `batch` rows.

    The loss of each row is computed with the weights before its step.
    """
    weights, loss = weights.copy(), 0.0
    order = context.rng.permutation(len(rows))
    for start in range(0, len(rows), batch):
        chosen = rows[order[start : start + batch]]
        features, labels = chosen[:, :-1], chosen[:, -1]
        scores = features @ weights[:-1] + weights[-1]
        loss += float(np.logaddexp(0, scores).sum() - labels @ scores)
        errors = 1 / (1 + np.exp(-scores)) - labels
        weights[:-1] -= rate / len(chosen) * (errors @ features)
        weights[-1] -= rate / len(chosen) * errors.sum()
    return weights * len(rows), loss, len(rows)


def add(a: Partial, b: Partial) -> Partial:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def mean(total: Partial, old: Floats) -> Result:
    """The mean of the partitions' weights, weighted by their rows."""
    weights, loss, rows = total
    moved = weights / max(rows, 1)
    return Result(moved, metrics={"loss": loss / max(rows, 1), "change": float(np.abs(moved - old).max())})


def as_rows(weights: Floats) -> Iterator[tuple[int, float]]:
    """(feature, weight) pairs. The last one is the bias."""
    for feature, weight in enumerate(weights):
        yield feature, float(weight)
