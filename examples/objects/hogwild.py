"""Sparse logistic regression: `python objects/hogwild.py`. Workers change shared weights and do not wait.

A batch has few of the features, so that workers seldom change the same weights (HOGWILD, NIPS 2011). The keepers take
the steps: they hold the sums of squares of Adagrad, and each worker pulls and pushes only the weights of its batch.
"""

import numpy as np

from treadle.client import session
from treadle.primitives.objects import Adagrad

FEATURES, ACTIVE, ROWS, BATCH = 2**16, 20, 10_000, 50


def rows(seed):
    """The active features of each row, of which a few are frequent, and whether the row is positive."""
    random = np.random.default_rng(seed)
    active = (FEATURES * random.random((ROWS, ACTIVE)) ** 10).astype(int)
    true = np.random.default_rng(0).normal(0, 1, FEATURES)
    return active, random.random(ROWS) < 1 / (1 + np.exp(-true[active].sum(axis=1)))


def train(seed, weights):
    active, positive = rows(seed)
    batches = [np.unique(active[first : first + BATCH], return_inverse=True) for first in range(0, ROWS, BATCH)]
    ahead = weights.prefetch(batches[0][0])
    for number, (features, place) in enumerate(batches):
        place, now = place.reshape(BATCH, ACTIVE), ahead.result()
        ahead = weights.prefetch(batches[(number + 1) % len(batches)][0])
        error = 1 / (1 + np.exp(-now[place].sum(axis=1))) - positive[number * BATCH : (number + 1) * BATCH]
        weights.push(features, np.bincount(place.ravel(), np.repeat(error, ACTIVE)) / BATCH)
    weights.flush()


def main(calls=8):
    with session("hogwild") as s:
        weights = s.keepers(shards=2, keepers=2).array("weights", FEATURES, rule=Adagrad(0.2))
        list(s.starmap(train, [(seed, weights) for seed in range(1, calls + 1)]).results())
        active, positive = rows(99)
        print(f"correct: {np.mean((weights.pull()[active].sum(axis=1) > 0) == positive):.0%}")


if __name__ == "__main__":
    main()
