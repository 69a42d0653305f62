"""Slots for segments: in turn, all of a gang or none, without a look at each of a thousand idle slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.executors.interface import Capabilities, Executor
from treadle.executors.program import Job, Keep, Program, Report, Task
from treadle.orchestrator.dispatcher.decisions.dispatch import Dispatch
from treadle.orchestrator.dispatcher.decisions.task_sizing import TaskSizes
from treadle.orchestrator.dispatcher.driver_context.slot_pool import Pools, SlotPool
from treadle.orchestrator.plan.plan import Policy
from treadle.primitives.errors import TreadleError, UsageError

TASK = Task("t", Job("r", "w", "", 0, "memory://", ""), Program("s", (), Keep()), ())


class Permit:
    def __init__(self, name: str) -> None:
        self.name = name
        self.task = ""

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        await asyncio.sleep(0)

    async def stop(self) -> None:
        raise AssertionError("no slot is stuck")


class Permits:
    """Slots without any cost."""

    def __init__(self, count: int) -> None:
        self.capabilities = Capabilities("permits", count, shares_host=False)
        self.slots: Sequence[Permit] = [Permit(f"p-{index}") for index in range(count)]
        self.started = self.stopped = 0

    async def start(self) -> None:
        self.started += 1
        await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self.stopped += 1


class Segment:
    """A client with a fixed number of tasks, which counts its calls."""

    def __init__(self, tasks: int, together: int = 1) -> None:
        self.core = Dispatch(Policy(max_concurrency=0), range(tasks), TaskSizes(tasks))
        self.asked, self.finished, self.over = 0, 0, asyncio.Event()
        self.most, self._together = 0, together

    def together(self) -> int:
        return self._together

    def offer(self, slot: str) -> Task | None:
        self.asked += 1
        found = self.core.next_task(slot, 0.0)
        self.most = max(self.most, self.core.running)
        return TASK if found else None

    def backup(self, slot: str) -> Task | None:
        return None

    async def ready(self) -> None:
        await asyncio.sleep(0)

    def report(self, slot: str, report: Report) -> None:
        raise AssertionError("permits report nothing")

    def ended(self, slot: str, error: BaseException | None) -> None:
        assert error is None
        rest = self.core._running[slot]  # private: the model compares with the core's own books
        self.finished += len(rest)
        rest.clear()
        self.core.ended(slot)
        if self.core.over:
            self.over.set()

    def refuse(self, error: TreadleError) -> None:
        raise AssertionError("every slot is in service")


async def test_ten_thousand_tasks_over_a_thousand_slots_take_about_two_offers_each() -> None:
    """Each end of a task offers its slot again, plus one more call at the end: never slots x tasks."""
    pool, segment = SlotPool(Permits(1000)), Segment(10_000)
    pool.join(segment)
    await segment.over.wait()
    await pool.leave(segment)
    assert segment.finished == 10_000
    assert segment.most == 1000
    assert segment.asked < 25_000


async def test_segments_take_turns() -> None:
    pool, first, second = SlotPool(Permits(10)), Segment(100), Segment(100)
    pool.join(first)
    pool.join(second)
    await asyncio.gather(first.over.wait(), second.over.wait())
    assert (first.finished, second.finished) == (100, 100)
    assert second.most > 1


async def test_groups_of_a_segment_have_one_turn_and_the_first_of_them_is_done_first() -> None:
    pool, groups, other = SlotPool(Permits(2)), [Segment(40), Segment(40), Segment(40)], Segment(40)
    for group in groups:
        pool.join(group, "wide")
    pool.join(other, "narrow")
    await other.over.wait()
    assert groups[0].finished >= 30
    assert sum(group.finished for group in groups) <= 60
    for group in groups:
        await group.over.wait()
    for client in (*groups, other):
        await pool.leave(client)
    assert [group.finished for group in groups] == [40, 40, 40]


async def test_pool_is_made_once_when_the_first_segment_wants_it() -> None:
    used, unused = Permits(1), Permits(1)
    pools = Pools({"used": used, "unused": unused})
    first, second = await asyncio.gather(pools.ready("used"), pools.ready("used"))
    assert first is second
    await pools.stop()
    assert (used.started, used.stopped, unused.started, unused.stopped) == (1, 1, 0, 0)


async def test_executor_that_is_just_starting_is_stopped_too() -> None:
    begun = asyncio.Event()

    class Slow(Permits):
        async def start(self) -> None:
            begun.set()
            await super().start()

    slow = Slow(1)
    pools = Pools({"slow": slow})
    asking = asyncio.create_task(pools.ready("slow"))
    await begun.wait()
    asking.cancel()
    await pools.stop()
    assert (slow.started, slow.stopped) == (1, 1)


async def test_executor_that_does_not_start_is_tried_again_by_the_next_segment() -> None:
    class Ill(Permits):
        async def start(self) -> None:
            await super().start()
            if self.started == 1:
                raise UsageError("not yet")

    pools = Pools({"ill": Ill(1)})
    with pytest.raises(UsageError, match="not yet"):
        await pools.ready("ill")
    assert (await pools.ready("ill")).slots


async def test_driver_says_which_executors_it_has() -> None:
    executors: dict[str, Any] = {"a": SimpleNamespace(), "b": SimpleNamespace()}
    known: dict[str, Executor] = executors
    with pytest.raises(UsageError, match=r"no executor 'c'\n  Its profile has: a, b\."):
        await Pools(known).ready("c")
