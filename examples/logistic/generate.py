"""Write labelled rows that a line separates, with noise: python generate.py FOLDER [--files 4] [--rows 20000]."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def write_rows(folder: Path, files: int, rows: int, features: int, seed: int = 1) -> None:
    """Write `files` NPY files of shape (rows, features + 1), with the label last. The same seed gives the same
    bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(seed).normal(size=features)
    for index in range(files):
        rng = np.random.default_rng([seed, index])
        drawn = rng.normal(size=(rows, features))
        labels = drawn @ weights + rng.logistic(size=rows) > 0
        np.save(folder / f"rows-{index:03d}.npy", np.column_stack([drawn, labels]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=20_000, help="in each file")
    parser.add_argument("--features", type=int, default=8)
    arguments = parser.parse_args()
    write_rows(arguments.folder, arguments.files, arguments.rows, arguments.features)
    print(f"{arguments.files * arguments.rows} rows in {arguments.folder}")
