"""Find the lowest place of Ackley's function (1987) with SciPy, whose differential evolution has workers.

python optimum.py [ROUNDS] [DIMENSIONS] [PROCESSES]
"""

import sys

import numpy as np
from scipy.optimize import differential_evolution


def height(place):
    """Many hollows; the lowest one is at 0."""
    far, waves = np.sqrt(np.mean(place**2)), np.mean(np.cos(2 * np.pi * place))
    return 20 + np.e - 20 * np.exp(-0.2 * far) - np.exp(waves)


def main(rounds=50, dimensions=4, processes=2):
    bounds = [(-30, 40)] * int(dimensions)
    found = differential_evolution(
        height, bounds, maxiter=int(rounds), rng=7, workers=int(processes), updating="deferred", polish=False
    )
    print(f"{found.nfev} heights, the lowest is {found.fun:.6f} at {np.round(found.x, 3)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
