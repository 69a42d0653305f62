"""A segment whose expected set grows while it runs: the calls of one function of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from treadle.executors.interface import Capabilities
from treadle.executors.program import BlockInput, CallFunction, Cut, Failure, ItemSplit, Keep, Outcome, PartitionInput
from treadle.primitives.encoding.references import BlockRef

from ...plan.plan import CallsFeed, Policy, Segment
from ...run_store.call_log import FunctionAdded
from ..blocks.write_behind import Copies, Copy
from ..decisions.dispatch import Dispatch
from ..ledger.ledger import Copied
from ..tasks.payload_budget import room
from .failed_segment import BlocksLost, Stopped
from .segment import SegmentRun

_LATER = ItemSplit(())


def open_segment(name: str, function: FunctionAdded, executor: str, can: Capabilities) -> Segment:
    """The segment of a function's calls. `executor`: where the function names none.

    Results that only other calls need stay in the shared memory of the host if its workers share it. Others are copied
    to the store from there.
    """
    put: Literal["host", "store"] = "host" if can.shares_host else "store"
    policy = Policy(
        maximum_attempts=1 + function.retries,
        timeout=function.timeout,
        memory_start=function.memory,
        memory_max=function.memory,
        max_concurrency=function.max_concurrency,
        executor=function.executor or executor,
        backups=False,
        durability="segment" if function.kept else "",
    )
    ops = (CallFunction(function.name, function.code.slice(0), function.parts),)
    tail = Cut(max_items=1) if function.parts else Keep()
    return Segment(name, (function.name,), CallsFeed(), ops, tail, policy, put=put)


class OpenRun(SegmentRun):
    """Runs partitions as they come. `settled` is called with each that is committed (its outcome) or has failed, and
    `copied` with the block of each that the store then has too.
    """

    settled: Callable[[int, Outcome | None], None]
    copied: Callable[[int, BlockRef], None]
    _inputs: list[PartitionInput]

    def _dispatch(self) -> Dispatch:
        self._task_sizes = self._sizes(first=1)  # a call may wait for another one
        core = Dispatch(self._segment.policy, (), self._task_sizes, self._past())
        core.grows = True
        return core

    def _copier(self) -> Copies | None:
        return Copies.of(self._segment, self._run.blocks, self._committed.values(), self._copied)

    def _copied(self, partition: int, copy: Copy) -> None:
        """Note that the store has a block too. A block that is gone from its host is computed again."""
        error, block = copy.exception(), self._committed[partition].block
        if error is not None:
            self.stop_with(error)
        elif found := copy.result():
            self._account.enter(Copied.of(self.name, {partition: found}))
            self.copied(partition, found)
        elif block is not None:
            self._core.lost.add(block.name)
            self._core.stop()
            self._settle()

    def expect(self, count: int) -> None:
        """Further partitions were called. Their input follows."""
        self._inputs += [_LATER] * count

    def begin(self, partition: int, input: BlockInput) -> None:
        """Run a partition, unless the ledger holds its outcome."""
        known = self._committed.get(partition)
        if known is not None:
            self.settled(partition, known)
            return
        self._inputs[partition] = input
        limit = self._pool.executor.capabilities.payload_limit
        self._task_sizes.weigh(room(limit, self._program, self._inputs, [partition])[1])
        self._core.add(partition)
        if partition in self._core.failed:
            self.settled(partition, None)
        self._pool.kick()

    def withdraw(self, partition: int) -> bool:
        """Do not begin a partition. False: it runs, or is over."""
        return self._inputs[partition] is _LATER or self._core.withdraw(partition)

    def close(self) -> None:
        """No further partition follows."""
        self._core.grows = False
        self._settle()

    async def run_open(self) -> None:
        """Run until `close` or `drain`. Raises Stopped after `drain`; BlocksLost, Fenced, StoreError."""
        try:
            await self._drive()
            if self._copies and self._error is None:
                await self._copies.finished()
        finally:
            if self._copies:
                self._copies.stop()
            await self._log.close()
        if self._error is not None:
            raise self._error
        if self._core.lost:
            raise BlocksLost(self._core.lost)
        if self._core.grows:
            raise Stopped

    def _commit(self, *outcomes: Outcome) -> None:
        super()._commit(*outcomes)
        self._writer.hurry()
        for outcome in outcomes:
            self.settled(outcome.partition, outcome)

    def _failure(self, slot: str, failure: Failure) -> None:
        known = len(self._core.failed)
        super()._failure(slot, failure)
        if len(self._core.failed) > known:
            self._writer.hurry()
            self.settled(next(reversed(self._core.failed)), None)
