"""Tests of an executor's reports of successful partitions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.primitives.errors import UsageError

from ..program import Outcome
from .workbench import Workbench

_LIMIT = 6 << 20
"""More bytes than any provider accepts or returns in a payload."""


class OutcomeTests:
    """Claims about outcomes, logs and the surroundings of user code."""

    async def test_each_partition_is_reported_once_and_in_order(self, bench: Workbench) -> None:
        reports = await bench.run(bench.task("same", [[index] for index in range(50)]))
        assert [report.partition for report in reports] == list(range(50))
        assert [bench.records(report) for report in reports] == [[index] for index in range(50)]

    async def test_empty_partition_has_an_outcome(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("same", [[]]))
        assert isinstance(report, Outcome)
        assert (report.rows, bench.records(report)) == (0, [])

    async def test_attempt_number_comes_back(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("same", [[1]], attempt=7))
        assert report.attempt == 7

    async def test_large_results_go_by_reference(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("large", [[16 << 20]]))
        assert isinstance(report, Outcome)
        assert report.block is not None
        assert report.block.inline == b""
        assert report.block.size > 16 << 20
        assert len(bench.records(report)[0]) == 16 << 20

    async def test_small_results_beyond_any_payload_arrive(self, bench: Workbench) -> None:
        task = bench.task("large", [[7168]] * 1000, inline_limit=8192)
        reports = await bench.run(task)
        blocks = [report.block for report in reports if isinstance(report, Outcome) and report.block]
        assert sum(len(block.inline) for block in blocks) > _LIMIT
        assert all(len(bench.records(report)[0]) == 7168 for report in reports)

    async def test_ten_thousand_partitions_in_one_task(self, bench: Workbench) -> None:
        reports = await bench.run(bench.task("same", [[index] for index in range(10_000)]))
        assert [report.partition for report in reports] == list(range(10_000))
        assert all(isinstance(report, Outcome) for report in reports)

    async def test_task_beyond_the_payload_limit_is_refused_before_anything_runs(self, bench: Workbench) -> None:
        task = bench.task("same", [["x" * _LIMIT]])
        if bench.executor.capabilities.payload_limit:
            with pytest.raises(UsageError, match="payload"):
                await bench.run(task)
        else:
            assert bench.records((await bench.run(task))[0]) == ["x" * _LIMIT]
        await bench.assert_usable()

    @pytest.mark.parametrize("way", ["print", "print from C", "print from a subprocess", "write raw"])
    async def test_prints_land_in_the_log(self, bench: Workbench, way: str) -> None:
        report = await bench.play((way, "a line for people"))
        assert isinstance(report, Outcome)
        assert b"a line for people\n" in report.log

    async def test_a_log_holds_the_prints_of_its_own_partition_only(self, bench: Workbench) -> None:
        script = bench.scripted({index: [[("print", f"line {index}")]] for index in (0, 2)})
        reports = await bench.run(bench.scripted_task(script, 3))
        assert [report.log for report in reports] == [b"line 0\n", b"", b"line 2\n"]

    async def test_a_long_log_keeps_its_last_64_kib(self, bench: Workbench) -> None:
        report = await bench.play(("print", "x" * 200_000), ("print", "the end"))
        assert len(report.log) == 64 << 10
        assert report.log.endswith(b"xx\nthe end\n")

    async def test_user_code_reads_nothing_from_stdin(self, bench: Workbench) -> None:
        assert isinstance(await bench.play(("read stdin",)), Outcome)

    async def test_hash_seed_is_fixed(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("process", [[0]]))
        assert bench.records(report)[0]["hash"] == _hash_with_seed_zero("treadle")

    async def test_time_zone_and_threads_are_fixed(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("environment", [[0]]))
        found = bench.records(report)[0]
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
        assert found["TZ"] == "UTC"
        assert {name: found[name] for name in names} == dict.fromkeys(names, "1")

    async def test_user_code_runs_in_a_process_of_its_own(self, bench: Workbench) -> None:
        (report,) = await bench.run(bench.task("process", [[0]]))
        assert bench.records(report)[0]["pid"] != os.getpid()

    async def test_two_slots_run_two_tasks_at_once(self, bench: Workbench, tmp_path: Path) -> None:
        mine, yours = str(tmp_path / "mine"), str(tmp_path / "yours")
        scripts = [bench.scripted({0: [[("meet", pair)]]}) for pair in ([mine, yours], [yours, mine])]
        tasks = [bench.scripted_task(script, 1) for script in scripts]
        both = await asyncio.gather(*(bench.run(task, slot) for slot, task in enumerate(tasks)))
        assert all(isinstance(report, Outcome) for (report,) in both)

    def test_slots_are_as_many_as_stated_and_have_names(self, bench: Workbench) -> None:
        names = {slot.name for slot in bench.executor.slots}
        assert len(names) == len(bench.executor.slots) == bench.executor.capabilities.slots == 2


def _hash_with_seed_zero(text: str) -> int:
    code, environment = f"print(hash({text!r}))", {"PYTHONHASHSEED": "0"}
    return int(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
