"""Wait for a condition, on a machine of any speed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 90.0
"""Seconds."""
PAUSE = 0.01


def eventually(holds: Callable[[], T], patience: float = PATIENCE) -> T:
    """The first true answer. Raises AssertionError when there is none in time."""
    end = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < end, f"it did not come about within {patience} s"
        time.sleep(PAUSE)
    return found


async def eventually_async(holds: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Like `eventually`, concurrently with other tasks of the loop; `holds` may be asynchronous."""
    end = time.monotonic() + patience
    while True:
        found = holds()
        if found := await found if inspect.isawaitable(found) else found:
            return found
        assert time.monotonic() < end, f"it did not come about within {patience} s"
        await asyncio.sleep(PAUSE)
