"""A function whose module imports NumPy."""

from __future__ import annotations

import numpy as np


def double(number: int) -> int:
    return int(np.int64(number) * 2)
