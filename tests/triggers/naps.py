"""A function for slow runs."""

from __future__ import annotations

import time


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds
