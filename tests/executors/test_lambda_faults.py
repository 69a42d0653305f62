"""Any fault at Lambda gives the same result, or an error with its class. Throttling spends no attempt."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from emulators.lambda_faults import Fault
from emulators.lambda_place import LambdaPlace, lambda_place

from treadle.executors import Place
from treadle.executors.functions import payload
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.program import Failure, Outcome, Report, Task
from treadle.executors.testing import Workbench
from treadle.primitives.errors import FailureClass, StoreError, UsageError
from treadle.primitives.stores.store import FileStore

Bench = Callable[..., Workbench]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path_factory.mktemp("lambda")) as place:
        yield place


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory, functions: LambdaPlace) -> str:
    key_file = str(tmp_path_factory.mktemp("key") / "key")
    functions.deploy(key_file)
    return key_file


@pytest.fixture
def bench(tmp_path: Path, key_file: str, functions: LambdaPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Makes executors, one after the other, over one store. Faults are removed at the end."""
    for name, value in functions.emulator.credentials.items():
        monkeypatch.setenv(name, value)
    place = Place(f"file://{tmp_path}/store", key_file, str(tmp_path / "host"))
    numbers = itertools.count()

    def make(slots: int = 4, **options: object) -> Workbench:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return Workbench(functions.executor(key_file, slots=slots, **options), place, folder)

    functions.emulator.settle()
    functions.emulator.invocations.clear()
    yield make
    functions.emulator.faults.set()
    for function in functions.emulator.functions.known.values():
        function.retries = 0


async def until_done(bench: Workbench, task: Task, slot: int = 0, *, attempts: int = 10) -> tuple[Report, int]:
    """Like the dispatcher: attempts are numbered, and attempts that say nothing about the task are not spent."""
    spent = 0
    for number in range(1, attempts + 1):
        parts = tuple(msgspec.structs.replace(one, attempt=number) for one in task.partitions)
        (report,) = await bench.run(msgspec.structs.replace(task, partitions=parts), slot)
        if isinstance(report, Outcome):
            return report, spent
        spent += report.failure not in (FailureClass.WORKER_LOST, FailureClass.UNREACHABLE, FailureClass.THROTTLED)
    raise AssertionError(report)


async def all_done(bench: Workbench, count: int, function: str = "same") -> list[int]:
    """Run as many tasks at a time as slots. Returns the attempts that each spent."""
    tasks = iter([(index, bench.task(function, [[index]])) for index in range(count)])
    spent: list[int] = []

    async def serve(slot: int) -> None:
        for index, task in tasks:
            report, attempts = await until_done(bench, task, slot)
            assert bench.records(report) == [index]
            spent.append(attempts)

    await asyncio.gather(*(serve(slot) for slot in range(len(bench.executor.slots))))
    return spent


_ANSWERED = (
    Fault("throttle", share=0.9),
    Fault("lose the answer", share=0.5),
    Fault("service error", share=0.3),
    Fault("twice"),
    Fault("two at once"),
    Fault("kill at start", times=1),
    Fault("kill at the end", times=1),
)
_ACCEPTED = (Fault("throttle", share=0.9), Fault("service error", share=0.3), Fault("twice"), Fault("two at once"))


@pytest.mark.parametrize(
    ("fault", "asynchronous"),
    [*((fault, False) for fault in _ANSWERED), *((fault, True) for fault in _ACCEPTED)],
    ids=lambda value: value.kind if isinstance(value, Fault) else "Event" if value else "RequestResponse",
)
async def test_results_are_the_same_and_no_attempt_is_spent(
    bench: Bench, functions: LambdaPlace, fault: Fault, asynchronous: bool
) -> None:
    functions.emulator.faults.set(msgspec.structs.replace(fault))
    workbench = bench(asynchronous=asynchronous)
    assert await all_done(workbench, 8) == [0] * 8
    await workbench.executor.stop()
    assert functions.emulator.faults.struck(fault.kind)


async def test_a_provider_that_tries_an_event_again_brings_one_result(bench: Bench, functions: LambdaPlace) -> None:
    """Deployment turns retries off. If they are on, a successful retry also ends the attempt."""
    functions.emulator.faults.set(Fault("kill at start", times=2))
    for function in functions.emulator.functions.known.values():
        function.retries = 2
    workbench = bench(slots=1, asynchronous=True)
    assert await all_done(workbench, 1) == [0]
    assert [one.run for one in functions.emulator.invocations] == [1, 2, 3]
    await workbench.executor.stop()


async def test_a_call_killed_under_way_is_lost_and_the_next_attempt_succeeds(
    bench: Bench, functions: LambdaPlace
) -> None:
    workbench = bench()
    await workbench.assert_usable()
    functions.emulator.faults.set(Fault("kill under way", times=1, after=0.3))
    script = workbench.scripted({0: [[("sleep", 60)], []]})
    task = workbench.scripted_task(script, 1)
    (lost,) = await workbench.run(task)
    assert isinstance(lost, Failure)
    assert lost.failure is FailureClass.WORKER_LOST
    assert "signal: killed" in lost.how
    report, _ = await until_done(workbench, task)
    assert isinstance(report, Outcome)
    await workbench.executor.stop()


async def test_a_function_killed_with_its_memory_in_use_ran_out_of_memory(bench: Bench, functions: LambdaPlace) -> None:
    workbench = bench()
    functions.emulator.faults.set(Fault("out of memory", times=1, after=0.1))
    report = await workbench.play(("sleep", 60))
    assert isinstance(report, Failure)
    assert report.failure is FailureClass.OUT_OF_MEMORY
    await workbench.executor.stop()


async def test_memory_of_a_function_that_is_used_up_moves_the_attempt_to_the_next_size(
    bench: Bench, functions: LambdaPlace
) -> None:
    workbench = bench()
    script = workbench.scripted({0: [[("allocate", 700 << 20)]] * 2})
    task = workbench.scripted_task(script, 1)
    report, spent = await until_done(workbench, task)
    assert isinstance(report, Outcome)
    assert spent == 1
    assert [one.function for one in functions.emulator.invocations] == ["treadle-512", "treadle-1024"]
    await workbench.executor.stop()


async def test_a_provider_that_ends_a_function_finds_the_partition_reported(
    bench: Bench, functions: LambdaPlace, key_file: str
) -> None:
    """The handler ends before Lambda's limit, and reports the function's stage. A quarter of the limit is for that."""
    functions.deploy(key_file, timeout=8)
    try:
        workbench = bench(seconds=8)
        report = await workbench.play(("loop",))
        assert isinstance(report, Failure)
        assert report.failure is FailureClass.TIMED_OUT
        assert "in _loop" in report.traceback
        assert "the function had no more time" in report.how
        assert functions.emulator.invocations[-1].error == ""
        await workbench.executor.stop()
    finally:
        functions.deploy(key_file)


async def test_a_task_longer_than_a_function_may_run_goes_on_from_its_checkpoint(
    bench: Bench, functions: LambdaPlace, key_file: str
) -> None:
    functions.deploy(key_file, timeout=2)
    try:
        workbench = bench(seconds=2)
        report, spent = await until_done(workbench, workbench.task("patient", [[22]]))
        ((begun, steps),) = workbench.records(report)
        assert (steps, begun > 0, spent > 0) == (22, True, True)
        await workbench.executor.stop()
    finally:
        functions.deploy(key_file)


async def test_a_partition_cut_off_because_others_came_first_is_not_reported(
    bench: Bench, functions: LambdaPlace, key_file: str
) -> None:
    """It spends no attempt, and gets a whole call next time."""
    functions.deploy(key_file, timeout=2)
    try:
        workbench = bench(seconds=2)
        script = workbench.scripted({0: [[("sleep", 0.5)]], 1: [[("sleep", 60)], []]})
        (report,) = await workbench.run(workbench.scripted_task(script, 2))
        assert isinstance(report, Outcome)
        assert report.partition == 0
        await workbench.executor.stop()
    finally:
        functions.deploy(key_file)


async def test_functions_of_a_dead_driver_are_adopted_not_repeated(bench: Bench, functions: LambdaPlace) -> None:
    first = bench()
    await asyncio.gather(*(first.assert_usable(slot) for slot in range(4)))
    script = first.scripted({"*": [[("sleep", 2)]]})
    tasks = [
        msgspec.structs.replace(task, partitions=(msgspec.structs.replace(task.partitions[0], index=index),))
        for index, task in enumerate(first.scripted_task(script, 1) for _ in range(4))
    ]
    running = [asyncio.create_task(first.run(task, slot)) for slot, task in enumerate(tasks)]
    async with asyncio.timeout(30):
        while any(script.times(index) == 0 for index in range(4)):  # noqa: ASYNC110 (a file is its sign of life)
            await asyncio.sleep(0.01)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    second = bench()
    found = await asyncio.gather(*(second.run(task, slot) for slot, task in enumerate(tasks)))
    assert [second.records(reports[0]) for reports in found] == [[0]] * 4
    assert [script.times(index) for index in range(4)] == [1] * 4
    assert isinstance(second.executor, FunctionExecutor)
    assert (second.executor.usage.adopted, second.executor.usage.calls) == (4, 0)
    await asyncio.gather(first.executor.stop(), second.executor.stop())


async def test_a_package_of_another_version_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    workbench = bench()
    monkeypatch.setattr(payload, "VERSION", "9.9.9")
    with pytest.raises(UsageError, match=r"the function runs treadle 0\.1\.0"):
        await workbench.assert_usable()
    await workbench.executor.stop()


async def test_a_function_with_another_key_is_refused(
    bench: Bench, functions: LambdaPlace, key_file: str, tmp_path: Path
) -> None:
    functions.deploy(str(tmp_path / "other"))
    try:
        workbench = bench()
        with pytest.raises(UsageError, match="another deployment key"):
            await workbench.assert_usable()
        await workbench.executor.stop()
    finally:
        functions.deploy(key_file)


async def test_a_store_that_is_slow_and_fails_one_call_in_twenty_changes_no_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the driver's side. For a function it means a failed partition, or reports that came inline only."""
    numbers = itertools.count()

    def unreliable(method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            if next(numbers) % 20 == 7:
                raise StoreError("the store is away", retryable=True)
            return method(*arguments)

        return call

    workbench = bench()
    with monkeypatch.context() as patch:
        for name in ("put", "list", "get"):
            patch.setattr(FileStore, name, unreliable(getattr(FileStore, name)))
        reports = await _outcomes(workbench, 30)
    assert [workbench.records(report) for report in reports] == [[index] for index in range(30)]
    assert next(numbers) > 20
    await workbench.executor.stop()


async def _outcomes(workbench: Workbench, count: int) -> list[Report]:
    tasks = [workbench.task("same", [[index]]) for index in range(count)]
    found: dict[int, Report] = {}

    async def serve(slot: int) -> None:
        for index in range(slot, count, 4):
            found[index], spent = await until_done(workbench, tasks[index], slot)
            assert spent == 0

    await asyncio.gather(*(serve(slot) for slot in range(4)))
    return [found[index] for index in range(count)]
