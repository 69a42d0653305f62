"""Logistic regression: `python objects/logistic.py`. Workers send gradients to shared weights and do not wait.

A worker's gradient may belong to weights that others have changed since (HOGWILD, NIPS 2011). So two runs differ in the
last digits, which this algorithm tolerates.
"""

import numpy as np

from treadle.client import session
from treadle.primitives.objects import read, shared

FEATURES, ROWS, BATCH = 20, 20_000, 100


@shared
class Weights:
    def __init__(self, size):
        self.values = np.zeros(size)

    @read
    def get(self):
        return self.values

    def push(self, gradient):
        """Take a step; returns the new weights."""
        self.values = self.values - 0.5 * gradient
        return self.values


def rows(seed):
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, (ROWS, FEATURES))
    true = np.linspace(-2, 2, FEATURES)
    return x, (random.random(ROWS) < 1 / (1 + np.exp(-x @ true))).astype(float)


def train(seed, weights):
    x, y = rows(seed)
    now = weights.get()
    for first in range(0, ROWS, BATCH):
        mine, target = x[first : first + BATCH], y[first : first + BATCH]
        now = weights.push(mine.T @ (1 / (1 + np.exp(-mine @ now)) - target) / BATCH)


def main(calls=4):
    with session("logistic") as s:
        weights = s.keepers().object("weights", Weights, FEATURES)
        list(s.starmap(train, [(seed, weights) for seed in range(calls)]).results())
        x, y = rows(99)
        print(f"correct: {np.mean((x @ weights.get() > 0) == y):.0%}")


if __name__ == "__main__":
    main()
