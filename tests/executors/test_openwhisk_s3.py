"""Tasks on OpenWhisk over a real S3 server, which the action reaches by its deployed variables."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from emulators.openwhisk import EmulatedExecutor, deploy, openwhisk
from emulators.openwhisk_faults import Fault, Kind

from treadle.executors import Place
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.program import Report
from treadle.executors.testing import Workbench
from treadle.primitives.testing.s3 import seaweedfs


async def test_tasks_run_over_s3_though_a_quarter_of_the_calls_is_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = str(tmp_path / "key")
    with seaweedfs() as s3, openwhisk(tmp_path / "openwhisk") as emulator:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        deploy(emulator, key_file, environment=s3.environment)
        kinds: tuple[Kind, ...] = ("throttle concurrent", "lose response", "platform error", "late record")
        emulator.set_faults(*(Fault(kind, share=0.06, seconds=0.2) for kind in kinds), seed=3)
        executor = EmulatedExecutor(emulator, key_file, 2, Rate(200, least=50))
        bench = Workbench(executor, Place("s3://treadle/store", key_file, str(tmp_path / "host")), tmp_path)
        tasks = iter(list(enumerate(bench.task("large", [[1 << 16]] * 2, inline_limit=0) for _ in range(12))))
        found: dict[int, list[Report]] = {}

        async def serve(slot: int) -> None:
            for number, task in tasks:
                found[number] = await bench.run(task, slot)

        await asyncio.gather(serve(0), serve(1))
        assert {len(bench.records(report)[0]) for reports in found.values() for report in reports} == {1 << 16}
        assert sorted(found) == list(range(12))
        assert sum(emulator.faults.struck().values()) > 0
        await FunctionExecutor.stop(executor)
