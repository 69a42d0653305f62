"""Any fault at OpenWhisk gives the same result, or an error with its class. Throttling spends no attempt."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from emulators.openwhisk import SIZES, EmulatedExecutor, deploy, openwhisk
from emulators.openwhisk_faults import Fault, Kind
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.executors import Place
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.openwhisk.invoker import action_name
from treadle.executors.program import Failure, Outcome, Report, Task
from treadle.executors.testing import Workbench
from treadle.executors.testing.workbench import failure_of
from treadle.executors.worker.environment import KEY_VARIABLE
from treadle.primitives.errors import FailureClass, UsageError

SLOTS = 4


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("deployment") / "key")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, key_file: str) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk")) as emulator:
        deploy(emulator, key_file)
        yield emulator


@pytest.fixture
def emulator(installation: OpenWhiskEmulator) -> Iterator[OpenWhiskEmulator]:
    """The emulator without faults or calls at the start."""
    limits = installation.limits
    installation.activations.clear()
    installation.refused = installation.most_at_once = 0
    yield installation
    installation.set_faults()
    installation.limits = limits


@pytest.fixture
async def bench(emulator: OpenWhiskEmulator, key_file: str, tmp_path: Path) -> AsyncIterator[Workbench]:
    executor = EmulatedExecutor(emulator, key_file, SLOTS, Rate(200, least=50))
    place = Place(f"file://{tmp_path}/store", key_file, str(tmp_path / "host"))
    yield Workbench(executor, place, tmp_path)
    await FunctionExecutor.stop(executor)


async def test_a_caller_cannot_give_a_container_another_key(emulator: OpenWhiskEmulator) -> None:
    url = f"{emulator.endpoint}/api/v1/namespaces/_/actions/{action_name('treadle', SIZES[0])}?blocking=true"
    user, _, password = emulator.key.partition(":")
    async with httpx.AsyncClient(auth=(user, password), trust_env=False) as http:
        refused = await http.post(url, json={"run": "r", "order": "", KEY_VARIABLE: "AAAA"})
    assert (refused.status_code, "parameters that are not allowed" in refused.text) == (400, True)


def usage(bench: Workbench) -> tuple[int, int]:
    """(accepted calls, throttled calls)."""
    assert isinstance(bench.executor, FunctionExecutor)
    return bench.executor.usage.calls, bench.executor.usage.throttled


async def attempt(bench: Workbench, task: Task, number: int = 1, slot: int = 0) -> Report:
    parts = tuple(msgspec.structs.replace(one, attempt=number) for one in task.partitions)
    (report,) = await bench.run(msgspec.structs.replace(task, partitions=parts), slot)
    return report


async def test_throttled_at_nine_calls_of_ten_everything_runs_once(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    emulator.set_faults(Fault("throttle concurrent", share=0.9))
    script = bench.scripted({})
    tasks = iter(
        [bench.task("scripted", [[n]], args={"script": script.as_value()}, per_partition=True) for n in range(8)]
    )
    reports: list[Report] = []

    async def serve(slot: int) -> None:
        for task in tasks:
            reports.append(await attempt(bench, task, slot=slot))

    await asyncio.gather(*(serve(slot) for slot in range(SLOTS)))
    assert [type(report) for report in reports] == [Outcome] * 8
    assert script.times(0) == 8
    calls, throttled = usage(bench)
    assert (calls, throttled) == (8, emulator.refused)
    assert throttled > 8


async def test_a_namespace_that_takes_one_call_at_a_time_gets_one_at_a_time(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    emulator.limits = dataclasses.replace(emulator.limits, concurrent=1)
    tasks = [bench.task("same", [[number]]) for number in range(SLOTS)]
    reports = await asyncio.gather(*(attempt(bench, task, slot=slot) for slot, task in enumerate(tasks)))
    assert [bench.records(report)[0] for report in reports] == list(range(SLOTS))
    assert emulator.most_at_once == 1


@pytest.mark.parametrize("kind", ["lose response", "platform error", "kill after run", "late record", "run twice"])
async def test_finished_activation_is_adopted_for_every_form_of_answer(
    bench: Workbench, emulator: OpenWhiskEmulator, kind: Kind
) -> None:
    """By the answer, by a late record, or by the reports in the store."""
    emulator.set_faults(Fault(kind, seconds=0.3))
    script = bench.scripted({})
    report = await attempt(bench, bench.scripted_task(script, 1))
    assert bench.records(report) == [0]
    assert emulator.faults.struck() == {kind: 1}
    assert script.times(0) == (2 if kind == "run twice" else 1)


@pytest.mark.parametrize("kind", ["kill before init", "kill before run", "kill during run"])
async def test_a_container_that_is_killed_is_a_lost_worker_and_the_next_attempt_runs(
    bench: Workbench, emulator: OpenWhiskEmulator, kind: Kind
) -> None:
    emulator.set_faults(Fault(kind, times=1, seconds=0.5))
    script = bench.scripted({0: [[("sleep", 30)]] if kind == "kill during run" else []})
    task = bench.scripted_task(script, 1)
    failure = failure_of(await attempt(bench, task))
    assert failure.failure is FailureClass.WORKER_LOST
    assert "exited unexpectedly" in failure.how
    assert isinstance(await attempt(bench, task, 2), Outcome)
    assert script.times(0) == (2 if kind == "kill during run" else 1)


async def test_a_call_that_is_lost_is_a_lost_worker(bench: Workbench, emulator: OpenWhiskEmulator) -> None:
    emulator.set_faults(Fault("lose call"))
    failure = failure_of(await attempt(bench, bench.task("same", [[1]])))
    assert failure.failure is FailureClass.WORKER_LOST
    assert "its answer was lost" in failure.how


async def test_an_installation_that_takes_no_calls_is_unreachable(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    emulator.set_faults(Fault("unavailable"))
    failure = failure_of(await attempt(bench, bench.task("same", [[1]])))
    assert failure.failure is FailureClass.UNREACHABLE
    assert emulator.activations == {}


async def test_executor_learns_how_long_calls_wait_for_a_container(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    await asyncio.to_thread(emulator.reclaim)
    await attempt(bench, bench.task("same", [[1]]))
    assert isinstance(bench.executor, FunctionExecutor)
    (activation,) = emulator.activations.values()
    assert bench.executor.means.waits == activation.waited_milliseconds / 1000 > 0


async def test_a_call_longer_than_the_blocking_wait_is_polled_for(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    emulator.limits = dataclasses.replace(emulator.limits, blocking_seconds=0.2)
    report = await attempt(bench, bench.scripted_task(bench.scripted({0: [[("sleep", 1.0)]]}), 1))
    assert bench.records(report) == [0]


async def test_missing_action_is_reported_with_the_command_to_deploy_it(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    away = emulator.actions.pop("treadle-256")
    try:
        with pytest.raises(UsageError, match="no action treadle-256") as caught:
            await attempt(bench, bench.task("same", [[1]]))
        assert "treadle deploy openwhisk" in caught.value.hint
    finally:
        emulator.actions[away.name] = away


async def test_a_task_larger_than_a_payload_goes_by_reference(bench: Workbench, emulator: OpenWhiskEmulator) -> None:
    """The limit is 1 MB for parameters and for the result (docs/reference.md of apache/openwhisk)."""
    report = await attempt(bench, bench.task("same", [["x" * (2 << 20)]]))
    assert bench.records(report) == ["x" * (2 << 20)]
    assert len(emulator.activations) == 1


async def test_an_attempt_that_ran_out_of_memory_gets_the_next_size(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    task = bench.scripted_task(bench.scripted({0: [[("allocate", 400 << 20)]] * 2}), 1)
    first = await attempt(bench, task)
    assert isinstance(first, Failure)
    assert first.failure is FailureClass.OUT_OF_MEMORY
    assert isinstance(await attempt(bench, task, 2), Outcome)
    assert [each.action.name for each in emulator.activations.values()] == ["treadle-256", "treadle-1024"]


async def test_attempt_ends_by_its_own_limit_before_the_container_is_killed(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    failure = failure_of(await attempt(bench, bench.scripted_task(bench.scripted({0: [[("allocate", 110 << 20)]]}), 1)))
    assert failure.failure is FailureClass.OUT_OF_MEMORY
    assert "MemoryError" in failure.traceback
    (activation,) = emulator.activations.values()
    assert (activation.action.name, activation.code) == ("treadle-256", 0)


async def test_task_gets_an_action_that_holds_its_memory_and_the_proxys(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    assert bench.executor.capabilities.memory_limit == (1024 - 192) << 20
    for memory in (64, 65):
        await attempt(bench, bench.task("same", [[1]], memory=memory << 20))
    assert [each.action.name for each in emulator.activations.values()] == ["treadle-256", "treadle-1024"]


async def test_an_attempt_without_a_timeout_ends_before_the_platform_ends_it(
    bench: Workbench, emulator: OpenWhiskEmulator
) -> None:
    emulator.actions["treadle-256"].document["limits"]["timeout"] = 4000
    try:
        failure = failure_of(await attempt(bench, bench.scripted_task(bench.scripted({0: [[("loop",)]]}), 1)))
    finally:
        emulator.actions["treadle-256"].document["limits"]["timeout"] = 60_000
    assert failure.failure is FailureClass.TIMED_OUT
    assert "in _loop" in failure.traceback
    (activation,) = emulator.activations.values()
    assert activation.code == 0
