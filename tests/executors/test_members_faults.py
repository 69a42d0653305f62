"""Resident functions with faults: the same result, or an error with its class.

Sandboxes are handlers in threads of this process, each with its worker process. The provider follows a script.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from treadle.executors import Place
from treadle.executors.function_handler import Handler
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Answer, Limits, NotRun, Throttled
from treadle.executors.functions.payload import VERSION, Blockset, JoinOrder, Request, Response, encode_content
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.program import Failure, Outcome, Report
from treadle.executors.resident import coordinator_host as hubs
from treadle.executors.resident import function as members
from treadle.executors.resident import lifetime
from treadle.executors.resident.block_server import Shelf
from treadle.executors.resident.coordinator_host import Meeting
from treadle.executors.resident.executor import MemberExecutor
from treadle.executors.testing import Workbench
from treadle.executors.testing.workbench import RUN
from treadle.executors.worker.environment import KEY_VARIABLE
from treadle.primitives import sealing
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import FailureClass, StoreError, UsageError
from treadle.primitives.peers.gateway import Membership
from treadle.primitives.peers.hosts import HostPeers
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import FileStore, Store
from treadle.primitives.wire import tls_identity

SIZES = (512 << 20, 1024 << 20)
Step = Callable[["Sandboxes", bytes], Awaitable[Answer]]


class Sandboxes:
    """An invoker. A call takes the next step of the script, and is normal when that is used up."""

    def __init__(self, key: bytes, seconds: float = 30.0) -> None:
        self.limits = Limits(6 << 20, 6 << 20, seconds, SIZES)
        self.steps: list[Step] = []
        self.sizes: list[int] = []
        self.ended = 0
        self._environment = {**os.environ, KEY_VARIABLE: base64.b64encode(key).decode()}
        self._all: list[_Sandbox] = []
        self._idle: list[_Sandbox] = []

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        self.sizes.append(memory)
        step = self.steps.pop(0) if self.steps else Sandboxes.serve
        return await step(self, request)

    async def serve(self, request: bytes) -> Answer:
        sandbox = await asyncio.to_thread(self._sandbox)
        decoded = msgspec.json.decode(request, type=Request)
        call = sandbox.thread.submit(sandbox.handler.handle, decoded, self.limits.seconds, self.sizes[-1])
        call.add_done_callback(lambda _: self._idle.append(sandbox))
        response = await asyncio.wrap_future(call)
        self.ended += 1
        return Answer("answered", msgspec.json.encode(response))

    def _sandbox(self) -> _Sandbox:
        if self._idle:
            return self._idle.pop()
        thread = concurrent.futures.ThreadPoolExecutor(1, "sandbox")
        sandbox = _Sandbox(thread.submit(Handler, dict(self._environment)).result(), thread)
        self._all.append(sandbox)
        return sandbox

    async def close(self) -> None:
        """The fixture ends them."""

    def end(self) -> None:
        for sandbox in self._all:
            sandbox.thread.submit(sandbox.handler.close).result()
            sandbox.thread.shutdown()


class _Sandbox(NamedTuple):
    handler: Handler
    thread: concurrent.futures.ThreadPoolExecutor


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), "")
    place.run_key("")
    return place


@pytest.fixture
def sandboxes(place: Place, request: pytest.FixtureRequest) -> Iterator[Sandboxes]:
    made = Sandboxes(sealing.load_or_create_key(place.key_file), getattr(request, "param", 30.0))
    yield made
    made.end()


@pytest.fixture
async def executor(place: Place, sandboxes: Sandboxes) -> AsyncIterator[MemberExecutor]:
    executor = members_of(sandboxes, place)
    yield executor
    await executor.stop()


@pytest.fixture
def bench(executor: MemberExecutor, place: Place, tmp_path: Path) -> Workbench:
    return Workbench(executor, place, tmp_path)


def members_of(sandboxes: Sandboxes, place: Place, **about: object) -> MemberExecutor:
    rate = Rate(200, least=100)
    calls = FunctionExecutor("lambda", sandboxes, key_file=place.key_file, rate=rate)
    meeting = msgspec.structs.replace(Meeting("tcp://127.0.0.1:0"), **about)
    return MemberExecutor(calls.means, meeting, key_file=place.key_file, slots=1)


def failed(report: Report, failure: FailureClass) -> Failure:
    assert isinstance(report, Failure), report
    assert report.failure is failure
    return report


# -- one call for many tasks ----------


async def test_tasks_of_several_runs_are_done_in_one_call(bench: Workbench, sandboxes: Sandboxes) -> None:
    for run in ("one", "other", "one"):
        task = bench.task("same", [[run]])
        (report,) = await bench.run(msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, run=run)))
        assert isinstance(report, Outcome)
    assert len(sandboxes.sizes) == 1


async def test_a_task_cut_off_and_withdrawn_leaves_the_member_to_the_next(
    bench: Workbench, sandboxes: Sandboxes
) -> None:
    script = bench.scripted({0: [[("sleep", 60)]]})
    attempt = asyncio.create_task(bench.run(bench.scripted_task(script, 1)))
    async with asyncio.timeout(30):
        while script.times(0) == 0:  # noqa: ASYNC110 (a file is the only sign of life)
            await asyncio.sleep(0.01)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await bench.assert_usable()
    assert len(sandboxes.sizes) == 1


async def test_a_connection_that_breaks_costs_neither_member_nor_task(
    bench: Workbench, executor: MemberExecutor, sandboxes: Sandboxes
) -> None:
    script = bench.scripted({0: [[("sleep", 0.5)]]})
    attempt = asyncio.create_task(bench.run(bench.scripted_task(script, 1)))
    async with asyncio.timeout(30):
        while script.times(0) == 0:  # noqa: ASYNC110 (a file is the only sign of life)
            await asyncio.sleep(0.01)
        server = executor._hub._server  # private: the test cuts the members' connections
        assert server is not None
        for connection in list(server._open):  # private: the test cuts the members' connections
            connection.abort()
        (report,) = await attempt
    assert isinstance(report, Outcome)
    assert (script.times(0), len(sandboxes.sizes)) == (1, 1)


async def test_a_member_without_tasks_is_dismissed_and_called_again_when_there_are(
    place: Place, sandboxes: Sandboxes, tmp_path: Path
) -> None:
    executor = members_of(sandboxes, place, idle=0.3)
    bench = Workbench(executor, place, tmp_path)
    try:
        await bench.assert_usable()
        async with asyncio.timeout(30):
            while sandboxes.ended == 0:  # noqa: ASYNC110 (the provider is not asked)
                await asyncio.sleep(0.05)
        await bench.assert_usable()
    finally:
        await executor.stop()
    assert (len(sandboxes.sizes), sandboxes.ended) == (2, 2)


# -- failing calls ----------


async def refuse(_: Sandboxes, __: bytes) -> Answer:
    raise Throttled("429")


async def fail(_: Sandboxes, __: bytes) -> Answer:
    raise NotRun("it failed for a reason of its own", retryable=True)


async def lose_the_answer(sandboxes: Sandboxes, request: bytes) -> Answer:
    """The call goes on, but its answer is lost."""
    sandboxes.kept = asyncio.create_task(sandboxes.serve(request))  # type: ignore[attr-defined]
    raise StoreError("the connection broke", retryable=True)


async def queue(sandboxes: Sandboxes, request: bytes) -> Answer:
    """Return like an asynchronous call."""
    sandboxes.kept = asyncio.create_task(sandboxes.serve(request))  # type: ignore[attr-defined]
    return Answer("accepted")


def crash(ended: str) -> Step:
    async def step(_: Sandboxes, __: bytes) -> Answer:
        return Answer(ended, how="it was killed")  # type: ignore[arg-type]

    return step


async def old(_: Sandboxes, __: bytes) -> Answer:
    return Answer("answered", msgspec.json.encode(Response(problem="version", version="0.0.1")))


async def test_refused_calls_wait_and_spend_nothing(bench: Workbench, sandboxes: Sandboxes) -> None:
    sandboxes.steps = [refuse, refuse, refuse]
    await bench.assert_usable()
    assert bench.executor.usage.throttled == 3  # type: ignore[attr-defined]


async def test_refused_call_is_reported_as_unreachable(bench: Workbench, sandboxes: Sandboxes) -> None:
    sandboxes.steps = [fail]
    (report,) = await bench.run(bench.task("same", [[1]]))
    failed(report, FailureClass.UNREACHABLE)
    await bench.assert_usable()


@pytest.mark.parametrize("call", [lose_the_answer, queue])
async def test_a_member_whose_answer_will_not_come_works_on(call: Step, bench: Workbench, sandboxes: Sandboxes) -> None:
    sandboxes.steps = [call]
    await bench.assert_usable()
    await bench.assert_usable()
    assert len(sandboxes.sizes) == 1


async def lose(_: Sandboxes, __: bytes) -> Answer:
    raise StoreError("the connection broke", retryable=True)


async def test_member_of_a_lost_call_is_given_up_before_the_provider_would_begin_it(
    bench: Workbench, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.executors.resident.long_call.START_SECONDS", 0.3)
    sandboxes.limits = msgspec.structs.replace(sandboxes.limits, queued_seconds=600.0)
    sandboxes.steps = [lose]
    async with asyncio.timeout(40):
        (report,) = await bench.run(bench.task("same", [[1]]))
    failed(report, FailureClass.WORKER_LOST)
    await bench.assert_usable()


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        ("crashed", FailureClass.WORKER_LOST),
        ("timed out", FailureClass.WORKER_LOST),
        ("out of memory", FailureClass.OUT_OF_MEMORY),
    ],
)
async def test_how_a_call_ended_tells_what_became_of_its_task(
    ended: str, failure: FailureClass, bench: Workbench, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.executors.resident.long_call._LAST_WORDS", 0.2)
    sandboxes.steps = [crash(ended)]
    (report,) = await bench.run(bench.task("same", [[1]]))
    assert failed(report, failure).how == "it was killed"
    await bench.assert_usable()


async def test_a_member_that_cannot_do_its_task_ends_at_once_and_says_why(
    bench: Workbench, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(self: Sandboxes, request: bytes) -> Answer:
        try:
            return await self.serve(request)
        except OSError as error:
            return Answer("crashed", how=str(error))

    async def full(*_: object) -> list[Report]:
        raise OSError("no space left")

    sandboxes.steps = [serve]
    with monkeypatch.context() as patch:
        patch.setattr(Handler, "work", full)
        (report,) = await bench.run(bench.task("same", [[1]]))
    assert "no space left" in failed(report, FailureClass.WORKER_LOST).how
    await bench.assert_usable()


async def test_the_reports_of_a_child_run_are_in_its_folder(
    bench: Workbench, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileStore, "delete", lambda *_: None)
    task = bench.task("large", [[7168]] * 100, inline_limit=8192)
    await bench.run(msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, run="parent/child")))
    names = [info.name for info in Store.open(place.store).list()]
    assert any("/members/" in name for name in names)
    assert all(name.startswith("runs/parent/_child/") for name in names)


async def test_a_task_that_ran_out_of_memory_gets_a_larger_member(bench: Workbench, sandboxes: Sandboxes) -> None:
    (report,) = await bench.run(bench.task("large", [[600 << 20]]))
    failed(report, FailureClass.OUT_OF_MEMORY)
    (report,) = await bench.run(bench.task("large", [[1 << 10]], attempt=2))
    assert isinstance(report, Outcome)
    assert sandboxes.sizes == list(SIZES)


async def test_another_version_stops_the_run_and_says_what_to_do(bench: Workbench, sandboxes: Sandboxes) -> None:
    sandboxes.steps = [old]
    with pytest.raises(UsageError, match=r"treadle deploy lambda"):
        await bench.run(bench.task("same", [[1]]))


async def test_functions_that_cannot_reach_the_coordinator_stop_the_run(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_FIRST_DIAL", 0.1)
    monkeypatch.setattr(hubs.Hub, "address", "tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="cannot reach this driver's coordinator"):
        await bench.run(bench.task("same", [[1]]))


async def copy(sandboxes: Sandboxes, request: bytes) -> Answer:
    """Deliver the call twice. Both run at once."""
    sandboxes.kept = asyncio.create_task(sandboxes.serve(request))  # type: ignore[attr-defined]
    return await sandboxes.serve(request)


async def test_of_two_copies_of_a_call_one_is_a_member_and_the_other_leaves(
    bench: Workbench, sandboxes: Sandboxes
) -> None:
    sandboxes.steps = [copy]
    script = bench.scripted({0: [[("sleep", 0.5)]]})
    (report,) = await bench.run(bench.scripted_task(script, 1))
    assert isinstance(report, Outcome)
    async with asyncio.timeout(30):
        while sandboxes.ended == 0:  # noqa: ASYNC110 (the provider is not asked)
            await asyncio.sleep(0.05)
    await bench.assert_usable()
    assert (sandboxes.ended, len(sandboxes.sizes), script.times(0)) == (1, 1, 1)


# -- the time limit ----------


@pytest.mark.parametrize("sandboxes", [6.0], indirect=True)
async def test_the_end_of_a_members_time_is_not_its_tasks_fault(bench: Workbench, sandboxes: Sandboxes) -> None:
    """The member has 4.5 s of the provider's 6 s, and tasks may run in 3.6 s of them."""
    assert isinstance(await bench.play(("sleep", 1.0)), Outcome)
    report = await bench.play(("sleep", 20.0))
    assert failed(report, FailureClass.WORKER_LOST).how == "its member's time was over"
    report = await bench.play(("sleep", 20.0))
    failed(report, FailureClass.TIMED_OUT)
    assert len(sandboxes.sizes) == 2


@pytest.mark.parametrize("sandboxes", [8.0], indirect=True)
async def test_an_idle_member_hands_its_blocks_to_the_next_when_its_time_is_over(
    sandboxes: Sandboxes, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks may run in 1.2 s of 6 s. The rest is for the start of a new member."""
    monkeypatch.setattr(lifetime, "HANDOVER_SHARE", 0.8)
    executor = members_of(sandboxes, place)
    bench = Workbench(executor, place, tmp_path)
    try:
        task = bench.task("large", [[1 << 20]])
        program = msgspec.structs.replace(task.program, put="host")
        (report,) = await bench.run(msgspec.structs.replace(task, program=program))
        assert isinstance(report, Outcome)
        assert report.block is not None
        async with asyncio.timeout(60):
            while sandboxes.ended == 0:  # noqa: ASYNC110 (the provider is not asked)
                await asyncio.sleep(0.05)
        (found,) = await asyncio.to_thread(pulled, report.block, place)
        assert len(found) == 1 << 20
    finally:
        await executor.stop()


def pulled(ref: BlockRef, place: Place) -> list[bytes]:
    """A block of the suite's run, read from another host."""
    store = Store.open(place.store)
    reader = Blocks(store, RUN, None, lambda: HostPeers(store, RUN, place.run_key(RUN), None))
    try:
        found: list[bytes] = reader.get(ref.slice(0))
        return found
    finally:
        reader.close()


# -- trust ----------


async def test_invitation_of_a_stranger_is_ignored(sandboxes: Sandboxes, place: Place) -> None:
    join = JoinOrder("tcp://127.0.0.1:9", "m", 10.0, 10.0, direct=False, idle=9.0)
    forged = encode_content("members-x", join, bytes(32))
    answer = await sandboxes.invoke(forged, SIZES[0], 10.0)
    assert msgspec.json.decode(answer.response, type=Response) == Response(problem="key", version=VERSION)


async def test_an_order_under_another_runs_key_is_refused_by_a_member(
    bench: Workbench, executor: MemberExecutor, sandboxes: Sandboxes
) -> None:
    await bench.assert_usable()
    executor.slots[0]._key = bytes(32)  # private: the test gives the slot a wrong key
    with pytest.raises(UsageError, match="another deployment key"):
        await bench.run(bench.task("same", [[1]]))
    assert len(sandboxes.sizes) == 1


async def test_members_and_coordinator_speak_tls(place: Place, sandboxes: Sandboxes, tmp_path: Path) -> None:
    executor = members_of(sandboxes, place, coordinator="tls://127.0.0.1:0")
    try:
        await Workbench(executor, place, tmp_path).assert_usable()
        assert executor._hub.address.startswith("tls://")
    finally:
        await executor.stop()


def test_an_address_that_would_not_be_encrypted_is_refused(place: Place, sandboxes: Sandboxes) -> None:
    with pytest.raises(UsageError, match="not be encrypted"):
        members_of(sandboxes, place, coordinator="tcp://driver.example.com:7171")


# -- blocks ----------


def alone(name: str) -> Membership:
    """The membership of a session without a coordinator."""
    return Membership(name, "members-1", bytes(32), lambda message: None)


def test_blocks_are_served_over_tls_off_loopback_and_adopted_by_the_next(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.executors.resident.block_server.is_loopback", lambda host: False)
    identity = tls_identity(tmp_path / "identity").path.read_text("ascii")
    store, run, key = Store.open(place.store), "run", place.run_key("run")
    first = Shelf(tmp_path / "first", place.run_key, "127.0.0.1", identity, alone("first"))
    ref = Blocks(store, run, HostFolder(tmp_path / "first")).put("s/0.1", "objects", [list(range(9999))], "host")
    first.announce(run, store)
    assert first.address.startswith("tls://")

    def read() -> object:
        reader = Blocks(store, run, None, lambda: HostPeers(store, run, key, None))
        try:
            return reader.get(ref.slice(0))
        finally:
            reader.close()

    assert read() == list(range(9999))
    assert not list((tmp_path / "first").rglob("*.pem")), "user code reads files"
    second = Shelf(tmp_path / "second", place.run_key, "127.0.0.1", identity, alone("second"))
    second.adopt(Blockset(run, place.store, (first.host_id,), ((ref.name, ref.size), ("s/1.1", 5))))
    first.close()
    assert read() == list(range(9999))
    second.close()


def test_a_member_that_is_gone_already_leaves_nothing_to_adopt(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[str] = []
    monkeypatch.setattr(Shelf, "_pull", lambda _self, _client, address, _blocks: pulled.append(address))
    shelf = Shelf(tmp_path / "shelf", place.run_key, "127.0.0.1", "", alone("shelf"))
    shelf.adopt(Blockset("run", place.store, ("nobody",), (("s/0.1", 5),)))
    assert not pulled
    shelf.close()
