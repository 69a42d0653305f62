"""Tests of an executor's reports of failed attempts. After each failure the slot must run the next task."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass, InternalError

from ..program import Outcome, Report, SecretRef
from .workbench import SECRET, Workbench, failure_of

_FOREVER: list[tuple[Any, ...]] = [("loop",), ("stuck in C",), ("stop",), ("sleep", 60)]


class FailureTests:
    """Claims about failures, time, memory, cancelling and secrets."""

    async def test_a_failing_partition_does_not_stop_the_rest(self, bench: Workbench) -> None:
        script = bench.scripted({1: [[("raise", "scripted")]]})
        reports = await bench.run(bench.scripted_task(script, 3))
        assert [isinstance(report, Outcome) for report in reports] == [True, False, True]
        failure = failure_of(reports[1])
        assert (failure.partition, failure.failure) == (1, FailureClass.USER_ERROR)
        assert (failure.error, failure.message) == ("treadle.executors.testing.script.ScriptedError", "scripted")
        assert "in _raise" in failure.traceback

    async def test_the_next_attempt_may_succeed(self, bench: Workbench) -> None:
        script = bench.scripted({0: [[("raise", "first")], [("exit", 1)], []]})
        task = bench.scripted_task(script, 1)
        classes = [getattr((await bench.run(task))[0], "failure", None) for _ in range(3)]
        assert classes == [FailureClass.USER_ERROR, FailureClass.WORKER_LOST, None]
        assert script.times(0) == 3

    @pytest.mark.parametrize(
        ("step", "how"),
        [
            (("exit", 3), "exit code 3"),
            (("exit", 0), "exit code 0"),
            (("segfault",), f"signal {signal.SIGSEGV} (SIGSEGV)"),
            (("signal", signal.SIGTERM), f"signal {signal.SIGTERM} (SIGTERM)"),
            (("kill",), f"signal {signal.SIGKILL} (SIGKILL)"),
        ],
        ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
    )
    async def test_a_lost_worker_is_reported_with_how(self, bench: Workbench, step: tuple[Any, ...], how: str) -> None:
        failure = failure_of(await bench.play(("print", "last words"), step))
        assert (failure.partition, failure.failure, failure.how) == (0, FailureClass.WORKER_LOST, how)
        assert b"last words\n" in failure.log
        await bench.assert_usable()

    async def test_a_segfault_says_where(self, bench: Workbench) -> None:
        assert "in _segfault" in failure_of(await bench.play(("segfault",))).traceback

    async def test_sys_exit_is_an_error_of_the_user(self, bench: Workbench) -> None:
        failure = failure_of(await bench.play(("system exit", 3)))
        assert failure.failure is FailureClass.USER_ERROR
        await bench.assert_usable()

    async def test_an_attempt_cut_short_reports_one_failure_and_nothing_after(self, bench: Workbench) -> None:
        reports = await bench.run(bench.scripted_task(bench.scripted({2: [[("exit", 1)]]}), 5))
        failure = failure_of(reports[-1])
        before = [report.partition for report in reports[:-1]]
        assert (before, failure.partition) in (([0, 1], 2), ([], -1))
        assert all(isinstance(report, Outcome) for report in reports[:-1])

    @pytest.mark.parametrize("step", _FOREVER, ids=lambda step: str(step[0]))
    async def test_a_partition_that_takes_too_long_is_killed(self, bench: Workbench, step: tuple[Any, ...]) -> None:
        started = time.monotonic()
        failure = failure_of(await bench.play(step, timeout=1.0))
        assert (failure.partition, failure.failure) == (0, FailureClass.TIMED_OUT)
        assert time.monotonic() - started < 50
        await bench.assert_usable()

    async def test_a_timeout_says_where(self, bench: Workbench) -> None:
        assert "in _loop" in failure_of(await bench.play(("loop",), timeout=1.0)).traceback

    async def test_time_is_kept_for_each_partition(self, bench: Workbench) -> None:
        script = bench.scripted({"*": [[("sleep", 0.4)]]})
        reports = await bench.run(bench.scripted_task(script, 4, timeout=1.0))
        assert [isinstance(report, Outcome) for report in reports] == [True] * 4

    async def test_memory_beyond_the_limit_is_refused(self, bench: Workbench) -> None:
        failure = failure_of(await bench.play(("allocate", 300 << 20), memory=100 << 20))
        assert (failure.partition, failure.failure) == (0, FailureClass.OUT_OF_MEMORY)
        await bench.assert_usable()

    async def test_the_memory_limit_is_the_tasks_own(self, bench: Workbench) -> None:
        script = bench.scripted({0: [[("allocate", 300 << 20)]] * 2})
        small, large = (bench.scripted_task(script, 1, memory=size << 20) for size in (100, 500))
        assert failure_of((await bench.run(small))[0]).failure is FailureClass.OUT_OF_MEMORY
        assert isinstance((await bench.run(large))[0], Outcome)

    @pytest.mark.parametrize("seconds", [0.0, 50.0], ids=["no timeout", "timeout"])
    async def test_cancelling_kills_the_attempt_and_frees_the_slot(self, bench: Workbench, seconds: float) -> None:
        script = bench.scripted({0: [[("sleep", 60)]]})
        reports: list[Report] = []
        task = bench.scripted_task(script, 1, timeout=seconds)
        attempt = spawn(bench.executor.slots[0].run(task, reports.append), name="attempt")
        async with asyncio.timeout(60):
            while script.times(0) == 0:  # noqa: ASYNC110 (a file is the only sign that works with every executor)
                await asyncio.sleep(0.01)
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
        assert reports == []
        await bench.assert_usable()

    async def test_what_the_report_raises_ends_the_attempt(self, bench: Workbench) -> None:
        def refuse(_: Report) -> None:
            raise LookupError("no ledger")

        with pytest.raises(LookupError, match="no ledger"):
            await bench.executor.slots[0].run(bench.task("same", [[1], [2]]), refuse)
        await bench.assert_usable()

    async def test_a_slot_refuses_a_second_task(self, bench: Workbench) -> None:
        first = spawn(bench.play(("sleep", 0.5)))
        await asyncio.sleep(0)
        with pytest.raises(InternalError, match="runs a task already"):
            await bench.assert_usable()
        assert isinstance(await first, Outcome)

    @pytest.mark.parametrize("end", ["return", "raise", "exit"])
    async def test_secrets_do_not_show(self, bench: Workbench, end: str) -> None:
        name, value = SECRET
        (report,) = await bench.run(bench.task("tell", [[end]], args={"secret": SecretRef(name)}, secrets=(name,)))
        assert value not in repr(report)
        assert b"the secret is" in report.log
        if end == "return":
            assert bench.records(report) == [str(len(value))]
        else:
            assert failure_of(report).failure is not None

    async def test_the_environment_shows_no_credentials_of_the_driver(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("environment", [[0]]))
        found = bench.records(report)[0]
        assert not [name for name in found if name.startswith(("TREADLE_", "TEMPORAL_"))]
        assert SECRET[1] not in found.values()
