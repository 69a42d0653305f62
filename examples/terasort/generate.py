"""Write printable 100-byte records: python generate.py FOLDER [--files 8] [--records 100000]."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def write_records(folder: Path, files: int, records: int, seed: int = 1) -> None:
    """Write `files` files of `records` records each. The same seed gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(files):
        rng = np.random.default_rng([seed, index])
        rows = rng.integers(33, 127, size=(records, 100), dtype=np.uint8)
        rows[:, 99] = ord("\n")
        rows.tofile(folder / f"rec-{index:03d}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--records", type=int, default=100_000, help="in each file")
    arguments = parser.parse_args()
    write_records(arguments.folder, arguments.files, arguments.records)
    print(f"{arguments.files * arguments.records} records in {arguments.folder}")
