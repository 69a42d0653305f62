"""A provider emulated on this machine keeps the guarantees of the executor interface, within the provider's limits."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.executors import Place
from treadle.executors.emulation.invoker import FULL, ParityInvoker
from treadle.executors.emulation.provider_limits import EMULATIONS, Emulation
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Limits
from treadle.executors.interface import Executor
from treadle.executors.program import Call, MapRecords, Task
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET, Workbench, failure_of
from treadle.primitives import sealing
from treadle.primitives.errors import FailureClass, UsageError

MIB = 1 << 20
TIGHT = Emulation(
    Limits(request=4096, response=4096, seconds=900, memory=(512 * MIB, 1024 * MIB), temporary=MIB, repeats=True),
    repeated=0,
    warm_calls=2,
)


def parity(place: Place, emulation: Emulation, slots: int = 2) -> FunctionExecutor:
    name, value = SECRET
    key = sealing.load_or_create_key(place.key_file)
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": tests, f"TREADLE_SECRET_{name.upper()}": value}
    return FunctionExecutor("lambda", ParityInvoker(emulation, key, environment), key_file=place.key_file, slots=slots)


@pytest.mark.chaos  # a minute; mostly the same as Lambda's conformance
class TestEmulatedLambda(ExecutorTests):
    @pytest.fixture
    async def executor(self, place: Place) -> AsyncIterator[Executor]:
        executor = parity(place, EMULATIONS["lambda"])
        yield executor
        await executor.stop()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), "")
    found.run_key("")
    return found


@pytest.fixture
async def tight(place: Place, tmp_path: Path) -> AsyncIterator[Workbench]:
    executor = parity(place, TIGHT)
    yield Workbench(executor, place, tmp_path)
    await executor.stop()


def calling(task: Task, function: str) -> Task:
    op = MapRecords("stage", Call(f"executors.parity_functions:{function}"))
    return msgspec.structs.replace(task, program=msgspec.structs.replace(task.program, ops=(op,)))


async def looks(bench: Workbench, index: int) -> Any:
    task = calling(bench.task("same", [[index]], attempt=index), "look")
    [report] = await bench.run(task)
    [found] = bench.records(report)
    return found


def test_every_provider_has_its_own_figures() -> None:
    """Their invokers cite the sources. This checks only that the emulation has the same figures."""
    lambda_, openwhisk = EMULATIONS["lambda"].limits, EMULATIONS["openwhisk"].limits
    assert (lambda_.request, lambda_.seconds, lambda_.temporary) == (6 * MIB, 900, 512 * MIB)
    assert openwhisk.request < MIB
    assert openwhisk.seconds == 300
    assert all(one.limits.repeats and one.repeated and one.warm_calls for one in EMULATIONS.values())


async def test_sandbox_is_warm_for_its_calls_and_then_starts_cold_and_empty(tight: Workbench) -> None:
    found = [await looks(tight, index) for index in range(1, 4)]
    folders, processes = zip(*found, strict=True)
    assert not any("left" in folder for folder in folders), "no attempt finds what another left"
    assert processes[0] == processes[1] != processes[2]


async def test_payload_beyond_the_limit_goes_by_reference(tight: Workbench) -> None:
    [report] = await tight.run(tight.task("same", [["x" * 100_000]], inline_limit=1 << 20))
    assert tight.records(report) == ["x" * 100_000]


async def test_temporary_folder_that_overflows_ends_the_attempt(tight: Workbench) -> None:
    [report] = await tight.run(calling(tight.task("same", [[2 * MIB]]), "fill"))
    failure = failure_of(report)
    assert (failure.failure, failure.how) == (FailureClass.WORKER_LOST, FULL)


async def test_call_ends_with_the_time_of_the_function(place: Place, tmp_path: Path) -> None:
    limits = msgspec.structs.replace(TIGHT.limits, seconds=2.0)
    executor = parity(place, msgspec.structs.replace(TIGHT, limits=limits))
    bench = Workbench(executor, place, tmp_path)
    assert failure_of(await bench.play(("sleep", 60))).failure is FailureClass.TIMED_OUT
    await executor.stop()


async def test_memory_beyond_the_size_of_the_function_is_refused_to_the_attempt(tight: Workbench) -> None:
    failure = failure_of(await tight.play(("allocate", 600 * MIB)))
    assert failure.failure is FailureClass.OUT_OF_MEMORY
    assert tight.executor.capabilities.memory_limit < 1024 * MIB
    with pytest.raises(UsageError, match="the largest function gives"):
        await tight.run(tight.task("same", [[1]], memory=2048 * MIB))


async def test_call_delivered_twice_counts_once(place: Place, tmp_path: Path) -> None:
    """Both copies run, unless the first ends before the other starts."""
    executor = parity(place, msgspec.structs.replace(TIGHT, repeated=1))
    bench = Workbench(executor, place, tmp_path)
    script = bench.scripted({0: [[("sleep", 1)], [("sleep", 1)]]})
    reports = await bench.run(bench.scripted_task(script, 1))
    assert [report.partition for report in reports] == [0]
    assert bench.records(reports[0])
    assert script.times(0) in (1, 2)
    await executor.stop()


async def test_a_sandbox_that_cannot_start_is_refused_and_leaves_nothing(
    tight: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", exhausted)
    with pytest.raises(UsageError, match=r"cannot be started.*Too many open files"):
        await tight.assert_usable()
    monkeypatch.undo()
    await tight.assert_usable()


async def test_stop_leaves_no_sandbox(tight: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    await asyncio.gather(*(tight.assert_usable(slot) for slot in range(2)))
    assert any(name.startswith("parity-sandbox-") for name in os.listdir(own))
    await tight.executor.stop()
    assert not os.listdir(own)
