"""Waiting for a condition, on a machine of any speed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

PATIENCE = 90.0


def wait_until(holds: Callable[[], object], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


async def until(holds: Callable[[], object], patience: float = PATIENCE) -> None:
    """`holds` may be asynchronous."""
    async with asyncio.timeout(patience):
        while True:
            found = holds()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.02)
