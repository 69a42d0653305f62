"""The write-behind copy: with `durability: segment` blocks reach the store while the segment still runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from treadle.executors.program import Outcome
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import CorruptError, MissingError

from ...plan.plan import Segment

AT_ONCE = 4
"""Copies under way: enough to hide a store's latency, few enough to leave most of the store to the tasks."""
_log = logging.getLogger(__name__)


Copy = asyncio.Task[BlockRef | None]
"""A block that is now in the store too, or None if it could not be read, or a StoreError."""


class Copies:
    """Copies blocks in the background, a few at a time."""

    def __init__(self, blocks: Blocks, copied: Callable[[int, Copy], None] | None = None) -> None:
        self._blocks = blocks
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[int, Copy] = {}
        self._copied = copied

    @staticmethod
    def of(
        segment: Segment,
        blocks: Blocks,
        committed: Iterable[Outcome],
        copied: Callable[[int, Copy], None] | None = None,
    ) -> Copies | None:
        """A copier for the segment, started for the blocks that are already committed; None if it needs no copies.

        `copied` is called after each copy, which is then forgotten: `finished` waits for the others.
        """
        if segment.policy.durability != "segment" or segment.put != "host":
            return None
        copies = Copies(blocks, copied)
        for outcome in committed:
            copies.add(outcome)
        return copies

    def add(self, outcome: Outcome) -> None:
        """Start to copy a committed block, unless the store has it or it travels inline."""
        block = outcome.block
        if block is not None and not {"store", "inline"} & set(block.locations):
            task = self._tasks[outcome.partition] = spawn(self._copy(block))
            if self._copied is not None:
                task.add_done_callback(partial(self._ended, self._copied, outcome.partition))

    def _ended(self, copied: Callable[[int, Copy], None], partition: int, task: Copy) -> None:
        if self._tasks.get(partition) is task:
            del self._tasks[partition]
        if not task.cancelled():
            copied(partition, task)

    async def finished(self) -> dict[int, BlockRef]:
        """Return partition -> its block in the store. Raises StoreError when the store refuses a block."""
        done = await asyncio.gather(*self._tasks.values())
        return {partition: block for partition, block in zip(self._tasks, done, strict=True) if block is not None}

    def stop(self) -> None:
        """Start no more copies."""
        for task in self._tasks.values():
            task.cancel()

    async def _copy(self, block: BlockRef) -> BlockRef | None:
        async with self._slots:
            try:
                return await asyncio.to_thread(self._blocks.copy_to_store, block)
            except (MissingError, CorruptError) as error:
                _log.warning("not copied, its readers will have it made again: %s", error)
                return None
