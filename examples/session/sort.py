"""A sort in two stages: `python session/sort.py 1000000` sorts random numbers that no process holds together.

A sample gives the boundaries. Each source is divided at the boundaries, and each target sorts its share of the sources.
"""

import sys

import numpy as np

from treadle.client import session

SOURCES, TARGETS = 8, 4


def source(number, count):
    """Random numbers, most of them small."""
    return np.random.default_rng(number).exponential(size=count)


def sample(numbers):
    return numbers[:: max(1, len(numbers) // 1000)]


def boundaries(samples):
    """The numbers that divide the samples into equal shares."""
    return np.quantile(np.concatenate(samples), np.arange(1, TARGETS) / TARGETS)


def divide(numbers, boundaries):
    """The numbers of each target."""
    targets = np.searchsorted(boundaries, numbers)
    return [numbers[targets == target] for target in range(TARGETS)]


def merge(target, divided):
    """The sorted numbers of a target. Arrays of other targets are not read: they are views of shared memory."""
    return np.sort(np.concatenate([shares[target] for shares in divided]))


def summary(numbers):
    assert (np.diff(numbers) >= 0).all()
    return len(numbers), numbers[0], numbers[-1]


def main(count):
    with session("sort") as s:
        sources = s.map(source, range(SOURCES), [count // SOURCES] * SOURCES)
        bounds = s.submit(boundaries, s.map(sample, sources))
        divided = s.map(divide, sources, [bounds] * SOURCES)
        targets = s.map(merge, range(TARGETS), [divided] * TARGETS)
        counts, firsts, lasts = zip(*s.map(summary, targets).results(), strict=True)
    assert all(last < first for last, first in zip(lasts, firsts[1:], strict=False))
    print(f"{sum(counts)} numbers in {TARGETS} sorted parts; the largest has {max(counts) / sum(counts):.0%}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
