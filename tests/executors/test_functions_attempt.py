"""An attempt on a function: every possible end of a call, and the results that earlier calls left."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import msgspec
import pytest
from executors.functions_provider import SIZES, Provider, Rig, outcomes, run

from treadle.executors.functions import attempt as attempts
from treadle.executors.functions import call_records, payload
from treadle.executors.functions.invoker import Answer, Limits, NotRun, Throttled
from treadle.executors.functions.payload import Order, Response, alive_object, seal_time
from treadle.executors.program import Failure, Outcome, Report
from treadle.primitives.errors import CorruptError, FailureClass, StoreError, UsageError
from treadle.primitives.stores.store import Store

_MB = 1 << 20


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(str(tmp_path))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has not begun after half a second counts as lost."""
    monkeypatch.setattr(attempts, "START_SECONDS", 0.5)


async def throttle(provider: Provider, order: Order) -> Answer:
    raise Throttled("429")


async def lose(provider: Provider, order: Order) -> Answer:
    raise StoreError("connection reset")


async def succeed_and_lose(provider: Provider, order: Order) -> Answer:
    await provider.succeed(order)
    raise StoreError("connection reset")


async def crash(provider: Provider, order: Order) -> Answer:
    return Answer("crashed", how="signal: killed", log=b"last words")


async def succeed_and_crash(provider: Provider, order: Order) -> Answer:
    await provider.succeed(order)
    return await crash(provider, order)


async def hang(provider: Provider, order: Order) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


def failure(reports: list[Report]) -> Failure:
    (report,) = reports
    assert isinstance(report, Failure)
    return report


async def test_the_answer_holds_the_reports_in_order(rig: Rig) -> None:
    provider = rig.provider()
    executor = rig.executor(provider)
    first, *others = await run(executor, rig.task(3, 1, 2))
    assert first.charge is not None
    assert (first.charge.calls, first.charge.memory) == (1, min(executor.means.invoker.limits.memory))
    assert [msgspec.structs.replace(first, charge=None), *others] == outcomes(provider.orders[0])
    assert executor.usage.calls == 1


async def test_throttled_call_is_repeated_without_spending_an_attempt(rig: Rig) -> None:
    provider = rig.provider(*[throttle] * 9)
    executor = rig.executor(provider)
    (report,) = await run(executor, rig.task(0))
    assert isinstance(report, Outcome)
    assert (executor.usage.calls, executor.usage.throttled) == (1, 9)
    assert len({order.reports for order in provider.orders}) == 1


async def test_a_slot_waits_for_as_long_as_the_provider_asks(rig: Rig) -> None:
    async def come_later(provider: Provider, order: Order) -> Answer:
        raise Throttled("429", retry_after=0.4)

    executor = rig.executor(rig.provider(come_later))
    begun = asyncio.get_running_loop().time()
    await run(executor, rig.task(0))
    assert asyncio.get_running_loop().time() - begun >= 0.4


async def test_a_lost_answer_is_found_in_the_store(rig: Rig) -> None:
    executor = rig.executor(rig.provider(succeed_and_lose))
    (report,) = await run(executor, rig.task(0))
    assert isinstance(report, Outcome)
    assert executor.usage.lost == 1


async def test_reports_of_a_call_that_crashed_after_writing_them_count(rig: Rig) -> None:
    (report,) = await run(rig.executor(rig.provider(succeed_and_crash)), rig.task(0))
    assert isinstance(report, Outcome)


@pytest.mark.parametrize(
    ("ended", "wanted"),
    [
        ("crashed", FailureClass.WORKER_LOST),
        ("out of memory", FailureClass.OUT_OF_MEMORY),
        ("timed out", FailureClass.TIMED_OUT),
    ],
)
async def test_a_call_that_ends_without_reports_is_classified(rig: Rig, ended: str, wanted: FailureClass) -> None:
    async def end(provider: Provider, order: Order) -> Answer:
        return Answer(ended, how="as Lambda said", log=b"last words", peak_memory=7)  # type: ignore[arg-type]

    failed = failure(await run(rig.executor(rig.provider(end)), rig.task(4, attempt=3)))
    assert (failed.partition, failed.attempt, failed.failure, failed.how) == (4, 3, wanted, "as Lambda said")
    assert (failed.log, failed.peak_memory) == (b"last words", 7)


async def test_where_a_crash_was_is_known_only_for_one_partition(rig: Rig) -> None:
    assert failure(await run(rig.executor(rig.provider(crash)), rig.task(1, 2))).partition == -1


async def test_a_call_that_never_ran_is_unreachable(rig: Rig) -> None:
    async def refuse(provider: Provider, order: Order) -> Answer:
        raise NotRun("connection refused")

    executor = rig.executor(rig.provider(refuse))
    assert failure(await run(executor, rig.task(0))).failure is FailureClass.UNREACHABLE
    assert isinstance((await run(executor, rig.task(0, attempt=2)))[0], Outcome)
    assert executor.usage.calls == 1


async def test_attempt_after_a_lost_answer_adopts_the_late_outcome(rig: Rig) -> None:
    provider = rig.provider(lose)
    executor = rig.executor(provider)
    assert failure(await run(executor, rig.task(0))).failure is FailureClass.WORKER_LOST
    again = asyncio.create_task(run(executor, rig.task(0, attempt=2)))
    await asyncio.sleep(0.3)
    assert not again.done()
    provider.leave(provider.orders[0], outcomes(provider.orders[0]))
    assert await again == outcomes(provider.orders[0])
    assert (len(provider.orders), executor.usage.adopted) == (1, 1)


@pytest.mark.usefixtures("impatient")
async def test_call_that_never_began_is_repeated(rig: Rig) -> None:
    provider = rig.provider(lose)
    executor = rig.executor(provider)
    await run(executor, rig.task(0))
    (report,) = await run(executor, rig.task(0, attempt=2))
    assert (report.attempt, len(provider.orders)) == (2, 2)


@pytest.mark.parametrize("waits", [0.0, 20.0, 500.0])
async def test_lost_call_is_repeated_after_it_had_time_to_begin(rig: Rig, waits: float) -> None:
    """It is repeated before the provider's latest start, unless calls were seen to wait that long."""
    queued = Limits(6 << 20, 6 << 20, 900.0, SIZES, queued_seconds=60.0)
    executor = rig.executor(rig.provider(lose, limits=queued))
    now = executor.means.clock()
    executor.means.clock, executor.means.waits = (lambda: now), waits
    task = rig.task(0)
    await run(executor, task)
    book = executor._book(rig.store, task.job.run, task.program.segment)  # private: the call log has no other access
    (call,) = book.under_way.at(call_records.work_of(task).values())
    assert call.begins - now == min(call_records.START_SECONDS + waits, call_records.START_SECONDS + 60.0)


async def test_executor_remembers_how_long_calls_waited(rig: Rig) -> None:
    async def wait(provider: Provider, order: Order) -> Answer:
        return msgspec.structs.replace(await provider.succeed(order), waited=7.0)

    executor = rig.executor(rig.provider(wait))
    for index in range(2):
        await run(executor, rig.task(index))
    assert executor.means.waits == 7.0


@pytest.mark.usefixtures("impatient")
async def test_a_function_that_says_it_is_alive_is_waited_for(rig: Rig) -> None:
    provider = rig.provider(lose)
    executor = rig.executor(provider)
    await run(executor, rig.task(0))
    order = provider.orders[0]
    sealed = seal_time(order.reports, 4e9, provider.key)
    Store.open(rig.store).put(alive_object(order.reports), sealed)
    again = asyncio.create_task(run(executor, rig.task(0, attempt=2)))
    await asyncio.sleep(1.0)
    assert not again.done()
    provider.leave(order, outcomes(order))
    assert await again == outcomes(order)
    assert len(provider.orders) == 1


async def test_functions_of_a_dead_driver_are_adopted_by_the_next(rig: Rig) -> None:
    first = rig.provider(*[hang] * 3)
    dead = rig.executor(first)
    attempts = [asyncio.create_task(run(dead, rig.task(index), index)) for index in range(3)]
    while len(first.orders) < 3:  # noqa: ASYNC110 (the last of three calls)
        await asyncio.sleep(0.01)
    for attempt in attempts:
        attempt.cancel()
    await asyncio.gather(*attempts, return_exceptions=True)
    second = rig.provider()
    executor = rig.executor(second)
    task = rig.task(0, 1, 2, 3)
    resumed = asyncio.create_task(run(executor, task))
    for order in first.orders:
        first.leave(order, outcomes(order))
    reports = await resumed
    assert [report.partition for report in reports] == [0, 1, 2, 3]
    assert [[one.index for one in order.task.partitions] for order in second.orders] == [[3]]
    assert executor.usage.adopted == 3


async def test_outcomes_that_a_dead_driver_had_committed_are_not_called_for_either(rig: Rig) -> None:
    """Its commit may not be on disk. Then the partition is requested again, with the same number."""
    await run(rig.executor(rig.provider()), rig.task(0))
    second = rig.provider()
    assert len(await run(rig.executor(second), rig.task(0))) == 1
    assert second.orders == []


async def test_outcome_is_adopted_only_once_because_a_second_request_lost_its_block(rig: Rig) -> None:
    await run(rig.executor(rig.provider()), rig.task(0))
    second = rig.provider()
    executor = rig.executor(second)
    for attempt in (2, 3):
        await run(executor, rig.task(0, attempt=attempt))
    assert [order.task.partitions[0].attempt for order in second.orders] == [3]


async def test_another_input_is_never_adopted(rig: Rig) -> None:
    await run(rig.executor(rig.provider()), rig.task(0))
    second = rig.provider()
    await run(rig.executor(second), rig.task(0, items=2))
    assert len(second.orders) == 1


async def test_a_failed_partition_of_a_dead_driver_is_called_for(rig: Rig) -> None:
    async def fail(provider: Provider, order: Order) -> Answer:
        reports: list[Report] = [Failure(0, 1, FailureClass.USER_ERROR, "raised")]
        return provider.answer(order, provider.leave(order, reports))

    await run(rig.executor(rig.provider(fail)), rig.task(0))
    second = rig.provider()
    assert isinstance((await run(rig.executor(second), rig.task(0, attempt=2)))[0], Outcome)
    assert len(second.orders) == 1


async def test_a_forged_record_of_calls_stops_the_run(rig: Rig) -> None:
    Store.open(rig.store).put("runs/run/functions/s/calls/x-0", b"treadle\x01" + bytes(40))
    with pytest.raises(CorruptError):
        await run(rig.executor(rig.provider()), rig.task(0))


@pytest.mark.parametrize("reports", [base64.b64encode(b"treadle\x01" + bytes(40)).decode(), "no Base64!", "§"])
async def test_forged_reports_are_corrupt(rig: Rig, reports: str) -> None:
    async def forge(provider: Provider, order: Order) -> Answer:
        return Answer("answered", msgspec.json.encode(Response(reports)))

    assert failure(await run(rig.executor(rig.provider(forge)), rig.task(0))).failure is FailureClass.CORRUPT


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (Response(problem="version", version="9.9"), "runs treadle 9.9, this driver is"),
        (Response(problem="key"), "another deployment key"),
        (Response(problem="no key"), "without a deployment key"),
    ],
)
async def test_a_function_that_does_not_fit_the_driver_is_refused(rig: Rig, response: Response, says: str) -> None:
    async def refuse(provider: Provider, order: Order) -> Answer:
        return Answer("answered", msgspec.json.encode(response))

    with pytest.raises(UsageError, match=says) as refused:
        await run(rig.executor(rig.provider(refuse)), rig.task(0))
    assert "treadle deploy lambda" in str(refused.value)


async def test_an_order_that_the_function_could_not_read_is_unreachable(rig: Rig) -> None:
    async def refuse(provider: Provider, order: Order) -> Answer:
        return Answer("answered", msgspec.json.encode(Response(problem="order")))

    assert failure(await run(rig.executor(rig.provider(refuse)), rig.task(0))).failure is FailureClass.UNREACHABLE


async def test_order_goes_by_reference_when_it_exceeds_a_payload(rig: Rig) -> None:
    limits = Limits(2000, 300, 900.0, SIZES)
    provider = rig.provider(limits=limits)
    reports = await run(rig.executor(provider), rig.task(*range(20), items=500))
    assert max(map(len, provider.requests)) <= 2000
    assert len(reports) == 20


async def test_accepted_calls_are_answered_by_the_store(rig: Rig) -> None:
    async def accept(provider: Provider, order: Order) -> Answer:
        asyncio.get_running_loop().call_later(0.2, provider.leave, order, outcomes(order))
        return Answer("accepted")

    provider = rig.provider(*[accept] * 4)
    executor = rig.executor(provider)
    found = await asyncio.gather(*(run(executor, rig.task(index), index) for index in range(4)))
    assert [reports[0].partition for reports in found] == [0, 1, 2, 3]


@pytest.mark.usefixtures("impatient")
async def test_an_accepted_call_that_never_reports_is_lost(rig: Rig) -> None:
    async def accept(provider: Provider, order: Order) -> Answer:
        return Answer("accepted")

    assert failure(await run(rig.executor(rig.provider(accept)), rig.task(0))).failure is FailureClass.WORKER_LOST


async def test_memory_that_ran_out_moves_the_partition_to_the_next_size(rig: Rig) -> None:
    async def run_out(provider: Provider, order: Order) -> Answer:
        reports: list[Report] = [Failure(0, 1, FailureClass.OUT_OF_MEMORY, "exception MemoryError")]
        return provider.answer(order, provider.leave(order, reports))

    provider = rig.provider(run_out, run_out, run_out)
    executor = rig.executor(provider)
    for attempt in range(1, 5):
        await run(executor, rig.task(0, attempt=attempt))
    await run(executor, rig.task(1))
    assert [size // _MB for size in provider.sizes] == [512, 1024, 2048, 2048, 512]


async def test_memory_that_the_task_asks_for_decides_the_size(rig: Rig) -> None:
    provider = rig.provider()
    executor = rig.executor(provider)
    for memory in (100, 500, 1500):
        await run(executor, rig.task(memory, memory=memory * _MB))
    assert [size // _MB for size in provider.sizes] == [512, 1024, 2048]
    with pytest.raises(UsageError, match="the largest function gives"):
        await run(executor, rig.task(0, memory=2048 * _MB))


async def test_a_call_is_on_record_before_it_is_made(rig: Rig) -> None:
    recorded: list[bool] = []

    async def look(provider: Provider, order: Order) -> Answer:
        store = Store.open(rig.store)
        known = [
            call.reports
            for info in store.list("runs/run/functions/s/calls")
            for call in call_records.open_calls(info.name, store.get(info.name), provider.key)
        ]
        recorded.append(order.reports in known)
        return await provider.succeed(order)

    executor = rig.executor(rig.provider(*[look] * 8), slots=8)
    await asyncio.gather(*(run(executor, rig.task(index), index) for index in range(8)))
    assert recorded == [True] * 8


async def test_a_store_that_fails_is_unreachable_and_no_call_is_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = rig.provider()
    executor = rig.executor(provider)

    def fail(*_: object) -> None:
        raise StoreError("the store is away", retryable=True)

    with monkeypatch.context() as patch:
        patch.setattr("treadle.primitives.stores.store.FileStore.put", fail)
        assert failure(await run(executor, rig.task(0))).failure is FailureClass.UNREACHABLE
    assert provider.orders == []
    assert isinstance((await run(executor, rig.task(0)))[0], Outcome)


def test_the_version_is_the_packages() -> None:
    import tomllib

    file = Path(__file__).parents[2] / "executors" / "pyproject.toml"
    assert tomllib.loads(file.read_text())["project"]["version"] == payload.VERSION
