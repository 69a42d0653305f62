"""Write a corpus of any size: python generate.py FOLDER [--megabytes 10] [--files 4]."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

VOCABULARY = 50_000
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


def write_corpus(folder: Path, megabytes: float, files: int, seed: int = 1) -> None:
    """Write words drawn by Zipf's law, twelve in a line. The same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    words = [_LETTERS[rng.integers(26, size=rng.integers(2, 10))].tobytes() for _ in range(VOCABULARY)]
    weights = 1 / np.arange(1, VOCABULARY + 1)
    size = int(megabytes * 1e6 / files)
    for index in range(files):
        with open(folder / f"text-{index:03d}.txt", "wb") as file:
            while file.tell() < size:
                drawn = rng.choice(VOCABULARY, size=12_000, p=weights / weights.sum())
                lines = (b" ".join(words[w] for w in drawn[i : i + 12]) for i in range(0, len(drawn), 12))
                file.write(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--files", type=int, default=4)
    arguments = parser.parse_args()
    write_corpus(arguments.folder, arguments.megabytes, arguments.files)
    print(f"{arguments.megabytes:g} MB in {arguments.folder}")
