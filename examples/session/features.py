"""Features of images and a classifier: `python session/features.py` prints its accuracy on images that it has not seen.

Many workers compute features, and one call fits the classifier to all of them.
"""

import numpy as np

from treadle.client import session

SIZE = 64


def image(number):
    """A noisy image of waves, and their direction: 1 across the image, -1 down."""
    random = np.random.default_rng(number)
    wave = np.sin(random.uniform(0.2, 0.6) * np.arange(SIZE) + random.uniform(0, 6))
    pixels = np.broadcast_to(wave, (SIZE, SIZE)) + random.normal(0, 1, (SIZE, SIZE))
    return (pixels, 1) if number % 2 else (pixels.T, -1)


def features(number):
    """The spectrum of the mean row and of the mean column, then the direction."""
    pixels, direction = image(number)
    spectra = [np.abs(np.fft.rfft(pixels.mean(axis))) for axis in (0, 1)]
    return np.concatenate([*spectra, [direction]])


def fit(rows):
    """The weights of a linear classifier, by least squares."""
    table = np.stack(rows)
    return np.linalg.lstsq(table[:, :-1], table[:, -1], rcond=None)[0]


def accuracy(weights, rows):
    """The share of images whose direction the classifier finds."""
    table = np.stack(rows)
    return float(np.mean(np.sign(table[:, :-1] @ weights) == table[:, -1]))


def main():
    with session("features") as s:
        train, test = (s.map(features, numbers, chunk=50) for numbers in (range(1000), range(1000, 1400)))
        found = s.submit(accuracy, s.submit(fit, train), test).result()
    print(f"accuracy: {found:.2f}")


if __name__ == "__main__":
    main()
