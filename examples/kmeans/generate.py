"""Write points around random centres: python generate.py FOLDER [--files 4] [--points 20000] [--dimensions 8]."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def write_points(folder: Path, files: int, points: int, dimensions: int, centres: int = 8, seed: int = 1) -> None:
    """Write `files` NPY files of shape (points, dimensions) with overlapping clouds. The same seed gives the same
    bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    around = np.random.default_rng(seed).normal(scale=2, size=(centres, dimensions))
    for index in range(files):
        rng = np.random.default_rng([seed, index])
        chosen = around[rng.integers(centres, size=points)]
        np.save(folder / f"points-{index:03d}.npy", chosen + rng.normal(size=chosen.shape))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--points", type=int, default=20_000, help="in each file")
    parser.add_argument("--dimensions", type=int, default=8)
    arguments = parser.parse_args()
    write_points(arguments.folder, arguments.files, arguments.points, arguments.dimensions)
    print(f"{arguments.files * arguments.points} points in {arguments.folder}")
