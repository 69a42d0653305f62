"""The conformance suite detects executors that break their guarantees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from treadle.executors import Place
from treadle.executors.interface import Slot
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.program import Failure, Report, Task
from treadle.executors.testing import ExecutorTests, Workbench

Reports = list[Report]


class _BadSlot:
    """Runs the task correctly, and then reports something else."""

    def __init__(self, slot: Slot, spoil: Callable[[Reports], Reports]) -> None:
        self.name = slot.name
        self._slot = slot
        self._spoil = spoil

    @property
    def task(self) -> str:
        return self._slot.task

    async def stop(self) -> None:
        await self._slot.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        reports: Reports = []
        await self._slot.run(task, reports.append)
        for one in self._spoil(reports):
            report(one)


class _BadExecutor(LocalExecutor):
    spoil: Callable[[Reports], Reports]

    @property
    def slots(self) -> Sequence[Slot]:  # type: ignore[override]
        return [_BadSlot(slot, self.spoil) for slot in super().slots]


def _forget_logs(reports: Reports) -> Reports:
    return [msgspec.structs.replace(report, log=b"") for report in reports]


def _be_vague(reports: Reports) -> Reports:
    return [
        msgspec.structs.replace(report, how="something went wrong") if isinstance(report, Failure) else report
        for report in reports
    ]


def _one_attempt(reports: Reports) -> Reports:
    return [msgspec.structs.replace(report, attempt=1) for report in reports]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Workbench]:
    place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), str(tmp_path / "host"))
    executor = _BadExecutor(run_key=place.run_key, slots=2)
    yield Workbench(executor, place, tmp_path)
    await executor.stop()


_SUITE = ExecutorTests()
_CUT_SHORT = _SUITE.test_an_attempt_cut_short_reports_one_failure_and_nothing_after
_ORDER = _SUITE.test_each_partition_is_reported_once_and_in_order
_LOST: Callable[[Workbench], Awaitable[None]] = lambda bench: _SUITE.test_a_lost_worker_is_reported_with_how(  # noqa: E731
    bench, ("exit", 3), "exit code 3"
)


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (lambda reports: reports[::-1], _ORDER),
        (lambda reports: reports[:-1], _ORDER),
        (lambda reports: [*reports, reports[-1]], _ORDER),
        (lambda reports: reports[:1] * len(reports), _ORDER),
        (_one_attempt, _SUITE.test_attempt_number_comes_back),
        (_forget_logs, _SUITE.test_a_log_holds_the_prints_of_its_own_partition_only),
        (lambda reports: reports[:2], _SUITE.test_a_failing_partition_does_not_stop_the_rest),
        (
            lambda reports: [*reports, *reports[-1:]],
            _SUITE.test_an_attempt_cut_short_reports_one_failure_and_nothing_after,
        ),
        (_be_vague, _LOST),
        (_forget_logs, _LOST),
    ],
)
async def test_a_broken_promise_is_noticed(
    bench: Workbench, spoil: Callable[[Reports], Reports], claim: Callable[[Workbench], Awaitable[None]]
) -> None:
    bench.executor.spoil = spoil  # type: ignore[attr-defined]
    with pytest.raises((AssertionError, ValueError)):
        await claim(bench)


async def test_the_same_claims_hold_when_nothing_is_spoiled(bench: Workbench) -> None:
    bench.executor.spoil = list  # type: ignore[attr-defined]
    await _ORDER(bench)
    await _LOST(bench)
    await asyncio.gather(*(bench.assert_usable(slot) for slot in range(2)))
