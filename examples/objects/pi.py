"""Pi from random points: `python objects/pi.py`. All calls add their hits to one shared number."""

import numpy as np

from treadle.client import session
from treadle.primitives.objects import Number

POINTS = 1_000_000


def throw(seed, hits):
    x, y = np.random.default_rng(seed).random((2, POINTS))
    hits.add(np.count_nonzero(x * x + y * y < 1))


def main(calls=20):
    with session("pi") as s:
        hits = s.keepers().object("hits", Number)
        list(s.starmap(throw, [(seed, hits) for seed in range(calls)]).results())
        print(f"pi: {4 * hits.get() / (calls * POINTS):.3f}")


if __name__ == "__main__":
    main()
