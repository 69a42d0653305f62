"""Calls by boto3: refused by Lambda, never arrived, or possibly run."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from emulators.lambda_emulator import REGION, LambdaEmulator
from emulators.lambda_faults import Fault, Kind

from treadle.executors.aws.invoker import LambdaInvoker
from treadle.executors.aws.thread_pool import DaemonThreads
from treadle.executors.functions.invoker import Answer, NotRun, Throttled
from treadle.primitives.errors import StoreError, UsageError

_HANDLER = """
import os, sys, time

def handler(event, context):
    print("hello from the function", flush=True)
    if event.get("exit"):
        os._exit(3)
    if event.get("raise"):
        raise ValueError("what the handler raised")
    time.sleep(event.get("sleep", 0))
    return {"event": event, "left": context.get_remaining_time_in_millis(), "large": "x" * event.get("large", 0)}
"""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaEmulator]:
    from emulators.lambda_code import runtime

    folder = tmp_path_factory.mktemp("small")
    (folder / "task").mkdir()
    (folder / "task" / "small.py").write_text(_HANDLER)
    emulator = LambdaEmulator(folder / "emulator", concurrency=2).start()
    try:
        code = [str(folder / "task"), runtime(folder)]
        for name, handler in (("f-512", "small.handler"), ("broken-512", "nothing.handler")):
            emulator.deploy(name, code, memory=512, environment={}, timeout=2)
            emulator.functions.known[name].handler = handler
        yield emulator
    finally:
        emulator.stop()


@pytest.fixture
async def invoker(emulator: LambdaEmulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LambdaInvoker]:
    for name, value in emulator.credentials.items():
        monkeypatch.setenv(name, value)
    invoker = LambdaInvoker("f", [512], region=REGION, endpoint=emulator.endpoint, concurrency=4)
    yield invoker
    emulator.faults.set()
    await invoker.close()


async def test_an_answer_brings_payload_log_and_figures(invoker: LambdaInvoker, emulator: LambdaEmulator) -> None:
    emulator.end_sandboxes()
    cold, warm = [await invoker.invoke(b'{"a": 1}', 0, 10) for _ in range(2)]
    assert (cold.ended, cold.cold, warm.cold) == ("answered", True, False)
    assert b'"event": {"a": 1}' in warm.response
    assert b"hello from the function" in warm.log
    assert warm.peak_memory > 1 << 20


@pytest.mark.parametrize(
    ("event", "ended", "how"),
    [
        (b'{"exit": 1}', "crashed", "Runtime.ExitError: RequestId: .* Error: Runtime exited with error: exit status 3"),
        (b'{"raise": 1}', "crashed", "ValueError: what the handler raised"),
        (b'{"sleep": 60}', "timed out", r"Task timed out after 2\.00 seconds"),
        (b'{"large": 6300000}', "crashed", "Response payload size exceeded"),
    ],
)
async def test_a_failed_call_says_how(invoker: LambdaInvoker, event: bytes, ended: str, how: str) -> None:
    answer = await invoker.invoke(event, 0, 10)
    assert answer.ended == ended
    assert re.search(how, answer.how)


@pytest.mark.parametrize(
    ("kind", "error"), [("throttle", Throttled), ("service error", NotRun), ("lose the answer", StoreError)]
)
async def test_errors_of_the_service_are_classified(
    invoker: LambdaInvoker, emulator: LambdaEmulator, kind: Kind, error: type[Exception]
) -> None:
    emulator.faults.set(Fault(kind))
    before = len(emulator.invocations)
    with pytest.raises(error) as raised:
        await invoker.invoke(b"{}", 0, 10)
    assert type(raised.value) is error
    assert len(emulator.invocations) - before == (kind == "lose the answer")


async def test_more_calls_than_the_concurrency_are_throttled(invoker: LambdaInvoker) -> None:
    calls = [asyncio.create_task(invoker.invoke(b'{"sleep": 0.5}', 0, 10)) for _ in range(4)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, Throttled) for one in found) == 2


async def test_an_answer_that_takes_too_long_is_lost(
    invoker: LambdaInvoker, emulator: LambdaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.executors.aws.invoker._ANSWER_SECONDS", 0.1)
    emulator.faults.set(Fault("slow", after=3))
    with pytest.raises(StoreError, match="no answer of f"):
        await invoker.invoke(b"{}", 0, 0.2)


async def test_a_call_that_waits_for_one_given_up_is_not_late(
    emulator: LambdaEmulator, invoker: LambdaInvoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def answer(_: LambdaInvoker, __: object, function: str, request: bytes) -> Answer:
        if request == b"slow":
            gate.wait()
        return Answer("answered")

    monkeypatch.setattr("treadle.executors.aws.invoker._ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(LambdaInvoker, "_invoke", answer)
    one = LambdaInvoker("f", [512], region=REGION, endpoint=emulator.endpoint, concurrency=1)
    with pytest.raises(StoreError, match=r"no answer of f in 0\.1 s"):
        await one.invoke(b"slow", 0, 0.1)
    waiting = asyncio.create_task(one.invoke(b"quick", 0, 0.2))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    gate.set()
    assert (await waiting).ended == "answered"
    await one.close()


async def test_missing_function_is_reported_with_the_command_to_deploy_it(
    emulator: LambdaEmulator, invoker: LambdaInvoker
) -> None:
    other = LambdaInvoker("other", [128], region=REGION, endpoint=emulator.endpoint)
    with pytest.raises(UsageError, match="no Lambda function other-128") as raised:
        await other.invoke(b"{}", 0, 10)
    assert "treadle deploy lambda" in raised.value.hint
    await other.close()


async def test_unloadable_package_is_reported_with_the_command_to_deploy_it(
    emulator: LambdaEmulator, invoker: LambdaInvoker
) -> None:
    other = LambdaInvoker("broken", [512], region=REGION, endpoint=emulator.endpoint)
    with pytest.raises(UsageError, match=r"broken-512 cannot be loaded: Runtime\.ImportModuleError"):
        await other.invoke(b"{}", 0, 10)
    await other.close()


async def test_a_provider_out_of_reach_has_run_nothing(invoker: LambdaInvoker) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    away = LambdaInvoker("f", [512], region=REGION, endpoint=f"http://127.0.0.1:{port}")
    with pytest.raises(NotRun, match="cannot be reached"):
        await away.invoke(b"{}", 0, 10)
    await away.close()


async def test_a_payload_beyond_the_limit_is_refused_by_lambda(invoker: LambdaInvoker) -> None:
    """The emulator enforces the executor's limit."""
    with pytest.raises(UsageError, match="RequestTooLarge"):
        await invoker.invoke(b'"' + b"x" * invoker.limits.request + b'"', 0, 10)


async def test_the_smallest_size_that_is_large_enough_is_called(
    emulator: LambdaEmulator, invoker: LambdaInvoker
) -> None:
    several = LambdaInvoker("g", [128, 1024, 512], region=REGION, endpoint=emulator.endpoint)
    assert several.limits.memory == (128 << 20, 512 << 20, 1024 << 20)
    for memory, size in ((0, 128), (128 << 20, 128), (129 << 20, 512), (1 << 40, 1024)):
        with pytest.raises(UsageError, match=f"g-{size}"):
            await several.invoke(b"{}", memory, 10)
    await several.close()


@pytest.mark.parametrize("sizes", [[], [127], [10_241]])
def test_sizes_that_lambda_does_not_have_are_refused(sizes: list[int]) -> None:
    with pytest.raises(UsageError, match="128 to 10240 MB"):
        LambdaInvoker("f", sizes)


def test_without_a_region_the_first_call_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="region"):
        asyncio.run(LambdaInvoker("f", [128]).invoke(b"{}", 0, 1))


async def test_region_of_the_variable_that_boto3_does_not_read_is_used(
    emulator: LambdaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emulator.credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", REGION)
    one = LambdaInvoker("f", [512], endpoint=emulator.endpoint)
    try:
        assert (await one.invoke(b'{"say": 1}', 0, 5)).ended == "answered"
    finally:
        await one.close()


async def test_an_endpoint_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)
    with pytest.raises(UsageError, match="nonsense"):
        await LambdaInvoker("f", [128], region=REGION, endpoint="nonsense").invoke(b"{}", 0, 1)


async def test_threads_are_as_many_as_calls_and_never_more_than_allowed() -> None:
    threads = DaemonThreads(3, "busy")
    gate = threading.Event()
    calls = [asyncio.create_task(threads.run(gate.wait)) for _ in range(10)]
    await asyncio.sleep(0.1)
    assert len([one for one in threading.enumerate() if one.name.startswith("busy-")]) == 3
    gate.set()
    assert await asyncio.gather(*calls) == [True] * 10
    threads.close()


async def test_call_is_not_made_when_it_is_cancelled_before_it_has_a_thread() -> None:
    threads, gate, done = DaemonThreads(1, "queue"), threading.Event(), []
    first = asyncio.create_task(threads.run(gate.wait))
    second = asyncio.create_task(threads.run(lambda: done.append("second")))
    await asyncio.sleep(0.01)
    second.cancel()
    gate.set()
    await first
    await threads.run(lambda: done.append("third"))
    assert done == ["third"]
    threads.close()


async def test_one_call_after_the_other_shares_a_thread() -> None:
    threads = DaemonThreads(8, "idle")
    names = set()
    for _ in range(20):
        names.add(await threads.run(lambda: threading.current_thread().name))
        await asyncio.sleep(0.005)
    assert len(names) <= 2
    threads.close()


async def test_a_call_does_not_wait_behind_one_that_was_taken_a_moment_ago() -> None:
    """The thread of that call has not reported its start yet."""
    threads, taken, go, second_ran = DaemonThreads(2, "taken"), threading.Event(), threading.Event(), threading.Event()
    get = threads._work.get  # private: the test delays a thread's start

    def slow_get() -> object:
        work = get()
        taken.set()
        go.wait(60)
        return work

    await threads.run(lambda: None)  # its thread is idle now, or soon
    threads._work = SimpleNamespace(get=slow_get, put=threads._work.put, qsize=threads._work.qsize)  # type: ignore[assignment]
    go.set()
    await threads.run(lambda: None)
    taken.clear()
    go.clear()
    first = asyncio.create_task(threads.run(lambda: second_ran.wait(60)))
    await asyncio.to_thread(taken.wait, 60)
    second = asyncio.create_task(threads.run(second_ran.set))
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(30):
        assert await first
        await second
    threads.close()


async def test_threads_do_not_keep_the_interpreter_from_ending() -> None:
    threads = DaemonThreads(1, "daemon")
    never = asyncio.create_task(threads.run(threading.Event().wait))
    await asyncio.sleep(0.05)
    never.cancel()
    assert all(one.daemon for one in threading.enumerate() if one.name.startswith("daemon-"))
