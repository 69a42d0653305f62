"""A member runs one task at a time, even while the worker of a stopped task is still being killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from eventually import eventually_async

from treadle.executors.functions.payload import JoinOrder, Order, Request
from treadle.executors.program import ItemSplit, Job, Keep, Partition, Program, Report, Task
from treadle.executors.resident.function import take_part
from treadle.primitives.coordinator.server import CoordinatorServer

KEY, SESSION, MEMBER = bytes(range(32)), "members-1", "member-1"


class Sandbox:
    """Works until it is stopped, and then until its worker is `killed`."""

    def __init__(self) -> None:
        self.killed = asyncio.Event()
        self.began: list[str] = []
        self.at_work: set[str] = set()
        self.met: list[set[str]] = []
        """The running tasks at each start of a task."""

    def open(self, request: Request) -> Order:
        job = Job("run", "workflow", "2026-01-01T00:00:00Z", 0, "memory://", "")
        partition = Partition(0, ItemSplit(()))
        return Order(Task(request.order, job, Program("s", (), Keep()), (partition,)), "reports", 60.0, 1 << 20)

    def run_key(self, run: str) -> bytes:
        return KEY

    async def hold_blocks(self) -> Path:
        raise AssertionError("nothing is served")

    def drop_blocks(self) -> None: ...

    async def work(self, task: Task, deadline: float, memory: int) -> list[Report]:
        self.met.append(set(self.at_work))
        self.began.append(task.id)
        self.at_work.add(task.id)
        try:
            await asyncio.Event().wait()
        finally:
            await self.killed.wait()
            self.at_work.remove(task.id)
        return []


@pytest.fixture
async def coordinator() -> AsyncIterator[CoordinatorServer]:
    async with CoordinatorServer({SESSION: KEY}.get) as server:
        yield server


def offer(coordinator: CoordinatorServer, task: str) -> None:
    coordinator.offer(SESSION, task, msgspec.json.encode(Request("run", task)), MEMBER)


def has(task: str) -> bool:
    """Returns whether the member received the task."""
    return any(one.get_name() == f"task {task}" for one in asyncio.all_tasks())


async def test_task_waits_for_the_end_of_every_task_that_was_stopped_before(coordinator: CoordinatorServer) -> None:
    sandbox = Sandbox()
    join = JoinOrder(coordinator.address, MEMBER, seconds=600, work=500, direct=False, idle=600)
    member = asyncio.create_task(take_part(sandbox, SESSION, join, 600, 0))
    offer(coordinator, "first")
    await eventually_async(lambda: sandbox.began == ["first"])
    coordinator.withdraw(SESSION, "first")
    offer(coordinator, "second")
    await eventually_async(lambda: has("second"))
    coordinator.withdraw(SESSION, "second")
    offer(coordinator, "third")
    await eventually_async(lambda: has("third"))
    await asyncio.sleep(0.1)
    sandbox.killed.set()
    await eventually_async(lambda: sandbox.began == ["first", "third"])
    assert sandbox.met == [set(), set()]
    coordinator.dismiss(SESSION, MEMBER)
    await member
    assert not sandbox.at_work
