"""The pools of a driver: one for each executor that its segments have used."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from treadle.executors.interface import Executor
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import UsageError

from .slot_pool import SlotPool


class Pools:
    """A pool for each executor, made when the first segment needs it. For one event loop."""

    def __init__(self, executors: Mapping[str, Executor]) -> None:
        """`executors`: by the name that stages use. A UsageError of a look-up reaches the caller of `ready`."""
        self.executors = executors
        self._pools: dict[str, asyncio.Task[SlotPool]] = {}

    async def ready(self, name: str) -> SlotPool:
        """The started pool of an executor. Raises UsageError when the executor does not exist, or does not start."""
        task = self._pools.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._pools[name] = spawn(self._start(name), name=f"start {name}")
        return await asyncio.shield(task)

    def open(self) -> list[tuple[str, SlotPool]]:
        """The pools made so far, by the names of their executors."""
        done = {name: task for name, task in self._pools.items() if task.done() and not task.cancelled()}
        return [(name, task.result()) for name, task in done.items() if task.exception() is None]

    async def _start(self, name: str) -> SlotPool:
        executor = self.executors.get(name)
        if executor is None:
            known = ", ".join(self.executors)
            raise UsageError(f"this driver has no executor {name!r}", f"Its profile has: {known}.")
        await executor.start()
        return SlotPool(executor)

    async def stop(self) -> None:
        """Stop every executor that has started or is starting."""
        started = await asyncio.gather(*self._pools.values(), return_exceptions=True)
        await asyncio.gather(*(pool.executor.stop() for pool in started if isinstance(pool, SlotPool)))
