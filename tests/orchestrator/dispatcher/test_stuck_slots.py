"""Runs whose slots forget a task or lose its reports: the same result, and no attempt is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from orchestrator.broken_runs import failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import mapped, spec

from treadle.executors.interface import Executor, Slot
from treadle.executors.program import Report, Task
from treadle.orchestrator.dispatcher.driver_context import slot_pool
from treadle.orchestrator.dispatcher.driver_context.slot_pool import SlotPool

FOUR = {"range": 4, "partitions": 4}
ONE_ATTEMPT: dict[str, Any] = {"retry": {"maximumAttempts": 1}}


class Forgetful:
    """A slot that forgets its first tasks, or loses their reports."""

    def __init__(self, inner: Slot, forgets: int, loses: int) -> None:
        self.name, self._inner = inner.name, inner
        self.forgets, self.loses = forgets, loses

    @property
    def task(self) -> str:
        return self._inner.task

    async def stop(self) -> None:
        await self._inner.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        if self.forgets:
            self.forgets -= 1
            await asyncio.Event().wait()
        elif self.loses:
            self.loses -= 1
            await self._inner.run(task, lambda _: None)
        else:
            await self._inner.run(task, report)


class ForgetfulExecutor:
    """See `Executor`."""

    def __init__(self, inner: Executor, forgets: int = 0, loses: int = 0) -> None:
        self.capabilities = inner.capabilities
        self._inner = inner
        self.slots: Sequence[Slot] = [Forgetful(slot, forgets, loses) for slot in inner.slots]

    async def start(self) -> None:
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_pool, "SlotPool", partial(SlotPool, patience=0.3, look=0.05))


@pytest.mark.parametrize("fault", [{"forgets": 1}, {"loses": 1}, {"forgets": 2, "loses": 2}])
def test_run_survives_slots_that_forget_or_lose_and_spends_no_attempt(
    breaking: Breaking, fault: dict[str, int]
) -> None:
    run = breaking(spec(only=mapped(FOUR, **ONE_ATTEMPT)))
    found = run.harness.result(run.engine(ForgetfulExecutor(run.executor, **fault)), run.run)
    assert values(found, "only") == [[0], [1], [2], [3]]


def test_run_fails_as_poison_when_every_report_is_lost(breaking: Breaking) -> None:
    run = breaking(spec(only=mapped({"range": 1, "partitions": 1})))
    found = run.harness.result(run.engine(ForgetfulExecutor(run.executor, loses=100)), run.run)
    assert failure(found) == "poison"
    assert "its slot ended it without a report" in str(found)
