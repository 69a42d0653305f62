"""Asyncio tasks whose clean-up always runs.

A plain task that is cancelled before its first step never enters its coroutine: no `try`, no `finally` and no
`except CancelledError` in it runs. A task of `spawn` enters its coroutine first; the cancellation arrives one turn of
the loop later, at the coroutine's first wait. Python 3.12 has eager tasks for this, Python 3.11 has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def spawn(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Start a task in the running loop that enters `work` even when it is cancelled at once.

    Keep a reference to it: the loop holds tasks weakly. Raises RuntimeError when no loop runs in this thread.
    """
    return _Spawned(work, name)


class _Spawned(asyncio.Task[T]):
    def __init__(self, work: Coroutine[Any, Any, T], name: str | None) -> None:
        self._entered = self._cancelled_early = False
        super().__init__(self._enter(work), loop=asyncio.get_running_loop(), name=name)

    async def _enter(self, work: Coroutine[Any, Any, T]) -> T:
        self._entered = True
        result = await work
        if self._cancelled_early:
            await asyncio.sleep(0)  # a pending cancellation reaches work that never waited here
        return result

    def cancel(self, msg: Any | None = None) -> bool:
        if self._entered:
            return super().cancel(msg)
        self._cancelled_early = True
        self.get_loop().call_soon(super().cancel, msg)  # runs after the first step, which was queued before
        return True
