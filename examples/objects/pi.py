"""Pi from random points: `python objects/pi.py`. All calls add their hits to one shared number."""

import tempfile

import numpy as np

from treadle.client import session
from treadle.primitives.objects import Keepers, Number

POINTS = 1_000_000


def throw(seed, hits):
    x, y = np.random.default_rng(seed).random((2, POINTS))
    hits.add(np.count_nonzero(x * x + y * y < 1))


def main(calls=20):
    with tempfile.TemporaryDirectory() as folder, Keepers(folder) as keepers:
        hits = keepers.object("hits", Number)
        with session("pi") as s:
            s.starmap(throw, [(seed, hits) for seed in range(calls)])
        print(f"pi: {4 * hits.get() / (calls * POINTS):.3f}")


if __name__ == "__main__":
    main()
