"""The examples of the PyWren paper as a session: word count, and a search for the best parameter.

`python session/calls.py '../docs/*.md'` prints the most frequent words, and the degree of the best polynomial.
"""

import glob
import os
import sys
from collections import Counter
from concurrent.futures import as_completed
from pathlib import Path

import numpy as np

from treadle.client import session


def count(path):
    return Counter(Path(path).read_text("utf-8").lower().split())


def total(counters):
    return sum(counters, Counter())


def sample(seed):
    """Noisy points of a curve."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, 400)
    return x, x**3 - x + random.normal(0, 0.05, x.size)


def error(degree, train, test):
    """The mean square error, on points that it was not fitted to."""
    fitted = np.polynomial.Polynomial.fit(*train, degree)
    return degree, float(np.mean((fitted(test[0]) - test[1]) ** 2))


def main(pattern):
    with session("paper") as s:
        words = s.submit(total, s.map(count, sorted(map(os.path.abspath, glob.glob(pattern)))))
        train, test = s.submit(sample, 1), s.submit(sample, 2)
        errors = [s.submit(error, degree, train, test) for degree in range(1, 8)]
        degree, _ = min((future.result() for future in as_completed(errors)), key=lambda found: found[1])
        print("frequent:", ", ".join(word for word, _ in words.result().most_common(3)))
        print("degree:", degree)


if __name__ == "__main__":
    main(sys.argv[1])
