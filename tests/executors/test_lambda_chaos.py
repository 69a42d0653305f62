"""Hundreds of calls with all faults at once, and drivers that die."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from emulators.lambda_faults import Fault
from emulators.lambda_place import lambda_place

from treadle.executors import Place
from treadle.executors.functions import attempt as attempts
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.program import Outcome, Report, Task
from treadle.executors.testing import Workbench
from treadle.primitives.errors import FailureClass

TASKS, SLOTS = 300, 8
FAULTS = (
    Fault("throttle", share=0.3),
    Fault("service error", share=0.05),
    Fault("lose the answer", share=0.1),
    Fault("two at once", share=0.1),
    Fault("kill at start", share=0.05),
    Fault("kill under way", share=0.05, after=0.02),
    Fault("kill at the end", share=0.05),
)
_UNSPENT = (FailureClass.WORKER_LOST, FailureClass.UNREACHABLE, FailureClass.THROTTLED)


class Ledger:
    """The commits and attempts so far. It outlives drivers."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks
        self.attempts: Counter[int] = Counter()
        self.committed: dict[int, Report] = {}

    def open(self) -> list[int]:
        return [index for index in range(len(self.tasks)) if index not in self.committed]

    def attempt(self, index: int) -> Task:
        self.attempts[index] += 1
        task = self.tasks[index]
        parts = tuple(msgspec.structs.replace(one, attempt=self.attempts[index]) for one in task.partitions)
        return msgspec.structs.replace(task, partitions=parts)


async def drive(bench: Workbench, ledger: Ledger, seconds: float) -> None:
    """A driver that serves its slots until all is done, or dies after `seconds`."""
    waiting = iter(ledger.open())

    async def serve(slot: int) -> None:
        for index in waiting:
            while index not in ledger.committed:
                (report,) = await bench.run(ledger.attempt(index), slot)
                if isinstance(report, Outcome):
                    ledger.committed[index] = report
                else:
                    assert report.failure in _UNSPENT, report

    serving = [asyncio.create_task(serve(slot)) for slot in range(SLOTS)]
    done, dead = await asyncio.wait(serving, timeout=seconds)
    for one in dead:
        one.cancel()
    await asyncio.gather(*dead, return_exceptions=True)
    for one in done:
        one.result()


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
async def test_every_task_ends_once_and_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(attempts, "START_SECONDS", 5.0)
    randomly = random.Random(seed)
    with lambda_place(tmp_path / "code", concurrency=4) as functions:
        for name, value in functions.emulator.credentials.items():
            monkeypatch.setenv(name, value)
        place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), "")
        functions.deploy(place.key_file)
        functions.emulator.faults.set(*(msgspec.structs.replace(fault) for fault in FAULTS))
        bench = Workbench(functions.executor(place.key_file, slots=SLOTS), place, tmp_path)
        ledger, drivers = Ledger([bench.task("same", [[index]]) for index in range(TASKS)]), 0
        while ledger.open():
            drivers += 1
            executor = functions.executor(place.key_file, slots=SLOTS)
            driver = Workbench(executor, place, tmp_path)
            await drive(driver, ledger, randomly.uniform(3, 10))
            assert isinstance(executor, FunctionExecutor)
            await executor.stop()
        assert drivers > 1
        assert [bench.records(ledger.committed[index]) for index in range(TASKS)] == [[i] for i in range(TASKS)]
