"""For any fate of calls and drivers, every partition gets its outcome, and none is computed twice."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from executors.functions_provider import Provider, Rig, outcomes, run
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.executors.functions import attempt as attempts
from treadle.executors.functions import report_poller
from treadle.executors.functions.invoker import Answer, NotRun, Throttled
from treadle.executors.functions.payload import Order
from treadle.executors.program import Outcome, Report
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.store import FileStore

PARTITIONS = 6
ENDS = (
    "good",
    "good",
    "throttled",
    "not run",
    "lost before",
    "lost after",
    "late",
    "crash before",
    "crash after",
    "hang",
)


class Unreliable(Provider):
    """Each call takes the next step of a story. Records the partitions that it was called for in vain."""

    def __init__(self, key: bytes, story: list[str]) -> None:
        super().__init__(key)
        self.story = story
        self.made: set[int] = set()
        """Partitions with their outcome in the store."""
        self.in_vain: list[int] = []
        self.hanging = 0

    async def all_settled(self, running: list[asyncio.Task[list[Report]]]) -> None:
        """Wait until each task is done or can never end."""
        self.hanging = 0
        while sum(not task.done() for task in running) > self.hanging:  # noqa: ASYNC110 (two kinds of end)
            await asyncio.sleep(0.002)

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        end = self.story.pop(0) if self.story else "good"
        if end == "throttled":
            raise Throttled("429")
        if end == "not run":
            raise NotRun("no connection")
        self.steps = [lambda _, order: self._play(end, order)]
        return await super().invoke(request, memory, seconds)

    async def _play(self, end: str, order: Order) -> Answer:
        indices = [one.index for one in order.task.partitions]
        self.in_vain += self.made.intersection(indices)
        if end in ("good", "lost after", "crash after", "hang"):
            self._make(order)
        if end == "late":
            asyncio.get_running_loop().call_later(0.01, self._make, order)
        if end in ("lost before", "lost after", "late"):
            raise StoreError("connection reset")
        if end in ("crash before", "crash after"):
            return Answer("crashed", how="signal: killed")
        if end == "hang":
            self.hanging += 1
            await asyncio.Event().wait()
        return self.answer(order, self.leave(order, outcomes(order)))

    def _make(self, order: Order) -> None:
        self.leave(order, outcomes(order))
        self.made.update(one.index for one in order.task.partitions)


async def drive(rig: Rig, story: list[str], groups: list[int]) -> Unreliable:
    """A dispatcher that dies when a call hangs. Its successor knows only the store."""
    provider = Unreliable(rig.key, story)
    wanted, number = set(range(PARTITIONS)), 0
    executor = rig.executor(provider)
    while wanted:
        number += 1
        assert number < 60
        rest = sorted(wanted)
        size = groups[number % len(groups)]
        tasks = [rig.task(*rest[at : at + size], attempt=number) for at in range(0, len(rest), size)]
        running = [asyncio.create_task(run(executor, task, slot % 4)) for slot, task in enumerate(tasks[:4])]
        await provider.all_settled(running)
        dead = [task for task in running if not task.done()]
        for task in dead:
            task.cancel()
        await asyncio.gather(*dead, return_exceptions=True)
        if dead:
            executor = rig.executor(provider)
        for task in [task for task in running if not task.cancelled()]:
            wanted -= {report.partition for report in task.result() if isinstance(report, Outcome)}
    return provider


def failing(method: Callable[..., Any], failures: Iterator[bool]) -> Callable[..., Any]:
    """A store method that fails in some calls."""

    def call(*arguments: Any) -> Any:
        if next(failures, False):
            raise StoreError("the store is away", retryable=True)
        return method(*arguments)

    return call


@contextmanager
def brisk(store: list[bool]) -> Iterator[None]:
    """Short waits. `store`: which calls of the driver's store fail (functions write by `create`)."""
    with pytest.MonkeyPatch.context() as patch:
        failures = iter(store)
        for name in ("put", "list", "get"):
            patch.setattr(FileStore, name, failing(getattr(FileStore, name), failures))
        patch.setattr(attempts, "START_SECONDS", 0.15)
        patch.setattr(report_poller, "_SHORTEST", 0.01)
        yield


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from(ENDS), max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.booleans(), max_size=20),
)
def test_every_partition_ends_and_no_outcome_is_recomputed(
    story: list[str], groups: list[int], store: list[bool]
) -> None:
    with brisk(store), tempfile.TemporaryDirectory() as folder:
        provider = asyncio.run(drive(Rig(folder), list(story), groups))
    assert provider.made == set(range(PARTITIONS))
    assert provider.in_vain == []
