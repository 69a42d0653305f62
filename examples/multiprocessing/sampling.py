"""Fit a line to points with errors: emcee samples its slope and offset, and a pool computes the probabilities.

python sampling.py [STEPS] [WALKERS] [PROCESSES]
"""

import multiprocessing
import sys

import emcee
import numpy as np

SLOPE, OFFSET, ERROR = -0.9, 4.3, 0.4
generator = np.random.default_rng(5)
places = np.sort(generator.uniform(0, 10, 50))
points = SLOPE * places + OFFSET + ERROR * generator.standard_normal(50)


def log_probability(line):
    """Of the points, if the line is the true one. Lines far away are excluded."""
    slope, offset = line
    if abs(slope) > 5 or abs(offset) > 10:
        return -np.inf
    return -0.5 * np.sum((points - slope * places - offset) ** 2) / ERROR**2


def main(steps=200, walkers=16, processes=2):
    np.random.seed(6)
    start = generator.normal([SLOPE, OFFSET], 0.1, (int(walkers), 2))
    with multiprocessing.Pool(int(processes)) as pool:
        sampler = emcee.EnsembleSampler(int(walkers), 2, log_probability, pool=pool)
        sampler.run_mcmc(start, int(steps))
    samples = sampler.get_chain(discard=int(steps) // 4, flat=True)
    for name, mean, width in zip(("slope", "offset"), samples.mean(0), samples.std(0), strict=True):
        print(f"{name} {mean:.4f} ± {width:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
