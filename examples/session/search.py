"""A search for the best parameter: `python session/search.py` prints the degree of the polynomial that fits best."""

from concurrent.futures import as_completed

import numpy as np

from treadle.client import session


def sample(seed):
    """Noisy points of a curve."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, 400)
    return x, x**3 - x + random.normal(0, 0.05, x.size)


def error(degree, train, test):
    """The mean square error, on points that it was not fitted to."""
    fitted = np.polynomial.Polynomial.fit(*train, degree)
    return degree, float(np.mean((fitted(test[0]) - test[1]) ** 2))


def main():
    with session("search") as s:
        train, test = s.submit(sample, 1), s.submit(sample, 2)
        errors = [s.submit(error, degree, train, test) for degree in range(1, 8)]
        degree, _ = min((future.result() for future in as_completed(errors)), key=lambda found: found[1])
    print("degree:", degree)


if __name__ == "__main__":
    main()
