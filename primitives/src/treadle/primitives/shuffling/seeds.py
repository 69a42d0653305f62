"""Seeds of randomness: a function of only the specification's seed, the stage and the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def partition_seed(seed: int, stage_path: str, partition: int) -> int:
    """128 bits: the first 16 bytes, big-endian, of SHA-256 over `treadle seed 1`, seed, stage path and partition.

    The four are joined by newlines, numbers in decimal, text in UTF-8. `stage_path` is the stage's id with the
    iterations of the loops around it, such as `lloyd[3].assign`.
    """
    import hashlib

    text = f"treadle seed 1\n{seed}\n{stage_path}\n{partition}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def rng(seed: int, stage_path: str, partition: int) -> np.random.Generator:
    """A fresh PCG64 generator for the partition: each attempt draws the same numbers."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(partition_seed(seed, stage_path, partition)))
