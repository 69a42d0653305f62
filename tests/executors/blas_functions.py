"""A user function that needs OpenBLAS. The module imports NumPy before the function is called."""

from __future__ import annotations

import numpy as np


def product(size: int) -> float:
    return float((np.ones((500, size)) @ (2 * np.ones((size, size)).T)).sum())
