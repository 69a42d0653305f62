"""Runs that are interrupted and resumed, with every attempt counted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from orchestrator.record_histories import TESTS

from treadle.client.testing import Engine, EngineFailure, EngineResult
from treadle.client.testing.faults import Damage
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.executors.interface import Executor, GangExecutor, Slot
from treadle.executors.program import Outcome, Report, Task
from treadle.primitives.channels.gang import MeetingPlace
from treadle.primitives.stores.store import Store

_numbers = itertools.count()
Done = tuple[str, int]
"""(segment, partition)."""


class Counted:
    """An executor that counts outcomes and passes each to `see` before the driver receives it."""

    def __init__(self, inner: Executor, see: Callable[[str, Outcome], None]) -> None:
        self.capabilities = inner.capabilities
        self.outcomes: Counter[Done] = Counter()
        self._slots = [_CountedSlot(slot, self, see) for slot in inner.slots]
        self._inner = inner

    @property
    def slots(self) -> Sequence[Slot]:
        return self._slots

    async def start(self) -> None:
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()

    def gang_place(self, run: str) -> AbstractAsyncContextManager[MeetingPlace]:
        assert isinstance(self._inner, GangExecutor)
        return self._inner.gang_place(run)


class _CountedSlot:
    def __init__(self, inner: Slot, owner: Counted, see: Callable[[str, Outcome], None]) -> None:
        self.name = inner.name
        self._inner, self._owner, self._see = inner, owner, see

    @property
    def task(self) -> str:
        return self._inner.task

    async def stop(self) -> None:
        await self._inner.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        def counted(one: Report) -> None:
            if isinstance(one, Outcome):
                self._owner.outcomes[task.program.segment, one.partition] += 1
                self._see(task.program.segment, one)
            report(one)

        await self._inner.run(task, counted)


def _look_away(_segment: str, _outcome: Outcome) -> None:
    pass


class Broken:
    """One run, carried out by engines that share only the store."""

    def __init__(self, harness: Harness, executor: Executor, store: Store, folder: Path, document: Mapping[str, Any]):
        self.harness, self.executor, self.store = harness, executor, store
        self.folder = folder
        self.run = f"broken-{next(_numbers)}"
        self.damage = Damage(store, self.run, None)
        refused = harness.submit(self.engine(executor), Case(dict(document)), folder, self.run)
        assert refused is None, refused

    def engine(self, executor: Executor, store: Store | None = None) -> Engine:
        return self.harness.engine(store or self.store, executor, None)

    def go(
        self,
        see: Callable[[str, Outcome], None] = lambda _segment, _outcome: None,
        store: Store | None = None,
        **how: Any,
    ) -> tuple[EngineResult | EngineFailure, Counter[Done]]:
        """Start or resume the run. Returns its result and the work done."""
        counted = Counted(self.executor, see)
        return self.harness.result(self.engine(counted, store), self.run, **how), counted.outcomes

    def losing(self, *which: Done) -> Callable[[str, Outcome], None]:
        """Delete the blocks of these partitions, once each, when they are made."""
        left = set(which)

        def see(segment: str, outcome: Outcome) -> None:
            if (segment, outcome.partition) in left and outcome.block is not None:
                left.discard((segment, outcome.partition))
                self.damage(outcome.block, "delete")

        return see


def values(found: EngineResult | EngineFailure, stage: str) -> list[Any]:
    """The partitions of a stage."""
    assert isinstance(found, EngineResult), found
    return [value for _, value in found.datasets[stage]]


def failure(found: EngineResult | EngineFailure) -> str:
    """The class of the failure."""
    assert isinstance(found, EngineFailure), found
    return found.problem.failure


ROOT = TESTS
