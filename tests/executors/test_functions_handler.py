"""The generic function: its requests, its results, and the messages that it refuses."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.executors import Place
from treadle.executors import function_handler as handlers
from treadle.executors.function_handler import Handler
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Answer, Limits
from treadle.executors.functions.payload import (
    Order,
    Request,
    Response,
    alive_object,
    encode_request,
    open_reports,
    open_time,
)
from treadle.executors.program import Failure, Outcome, Report, SecretRef, Task
from treadle.executors.testing import Workbench
from treadle.executors.testing.workbench import RUN
from treadle.executors.worker.environment import KEY_VARIABLE
from treadle.primitives import sealing
from treadle.primitives.errors import FailureClass, StoreError
from treadle.primitives.stores.store import FileStore, Store

_MEMORY = 1024 << 20


class Sandbox:
    """A handler in a thread of its own, called like a provider calls it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "sandbox")
        self._handler = self._thread.submit(Handler, environment).result()
        self.limits = Limits(6 << 20, 6 << 20, 30.0, (_MEMORY,))

    def handle(self, request: Request, seconds: float = 30.0) -> Response:
        return self._thread.submit(self._handler.handle, request, seconds, _MEMORY).result()

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        response = await asyncio.to_thread(self.handle, msgspec.json.decode(request, type=Request), seconds)
        return Answer("answered", msgspec.json.encode(response))

    async def close(self) -> None:
        """Its fixture ends it."""

    def end(self) -> None:
        self._thread.submit(self._handler.close).result()
        self._thread.shutdown()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), "")
    place.run_key("")
    return place


@pytest.fixture
def sandbox(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a sandbox has its own temporary folder
    key = base64.b64encode(sealing.load_or_create_key(place.key_file)).decode()
    environment = {**os.environ, KEY_VARIABLE: key, "TREADLE_SECRET_TOKEN": "correct horse", "TREADLE_OTHER": "x"}
    sandbox = Sandbox(environment)
    yield sandbox
    sandbox.end()


@pytest.fixture
def bench(sandbox: Sandbox, place: Place, tmp_path: Path) -> Workbench:
    executor = FunctionExecutor("lambda", sandbox, key_file=place.key_file, slots=1)
    return Workbench(executor, place, tmp_path)


def request_of(task: Task, place: Place, **about: Any) -> tuple[Request, Order]:
    order = Order(task, "runs/conformance/functions/stage/reports/s-0/0", 30.0, 6 << 20, **about)
    request = encode_request(order, place.run_key(RUN), 6 << 20)
    return msgspec.json.decode(request, type=Request), order


def reports_of(response: Response, order: Order, place: Place) -> list[Report]:
    return open_reports(order.reports, base64.b64decode(response.reports), place.run_key(RUN))


def test_settings_are_taken_out_of_the_environment(sandbox: Sandbox) -> None:
    assert [name for name in sandbox.environment if name.startswith("TREADLE_")] == []


async def test_user_code_finds_neither_key_nor_secrets(bench: Workbench) -> None:
    (report,) = await bench.run(bench.task("environment", [[0]]))
    found = bench.records(report)[0]
    assert [name for name in found if name.startswith("TREADLE_")] == []
    assert "correct horse" not in found.values()


async def test_secret_that_was_not_deployed_is_an_error_without_retry(bench: Workbench) -> None:
    (report,) = await bench.run(bench.task("tell", [["x"]], args={"secret": SecretRef("other")}, secrets=("other",)))
    assert isinstance(report, Failure)
    assert (report.failure, report.retryable) == (FailureClass.USER_ERROR, False)
    assert "no secret 'other'" in report.message


async def test_handler_empties_the_temporary_folder_between_tasks(bench: Workbench, sandbox: Sandbox) -> None:
    folder = (await _environment(bench))["TMPDIR"]
    os.makedirs(f"{folder}/left/by the task before")
    await bench.assert_usable()
    assert os.listdir(folder) == []


async def test_one_worker_serves_one_task_after_the_other(bench: Workbench) -> None:
    pids = set()
    for _ in range(3):
        (report,) = await bench.run(bench.task("process", [[0]]))
        pids.add(bench.records(report)[0]["pid"])
    assert len(pids) == 1


async def _environment(bench: Workbench) -> dict[str, str]:
    (report,) = await bench.run(bench.task("environment", [[0]]))
    found: dict[str, str] = bench.records(report)[0]
    return found


def test_the_reports_are_in_the_store_before_they_are_answered(
    sandbox: Sandbox, bench: Workbench, place: Place
) -> None:
    request, order = request_of(bench.task("same", [[1]]), place)
    response = sandbox.handle(request)
    assert Store.open(place.store).get(order.reports) == base64.b64decode(response.reports)


def test_of_two_runs_of_one_call_the_first_reports_count(sandbox: Sandbox, bench: Workbench, place: Place) -> None:
    script = bench.scripted({0: [[("print", "first")], [("print", "second")]]})
    request, order = request_of(bench.scripted_task(script, 1), place)
    first, second = sandbox.handle(request), sandbox.handle(request)
    assert script.times(0) == 2
    assert first == second
    assert reports_of(second, order, place)[0].log == b"first\n"


def test_a_call_that_may_have_run_before_is_not_run_again(sandbox: Sandbox, bench: Workbench, place: Place) -> None:
    script = bench.scripted({0: [[("print", "first")]]})
    request, _ = request_of(bench.scripted_task(script, 1), place, repeats=True)
    assert sandbox.handle(request) == sandbox.handle(request)
    assert script.times(0) == 1


def test_a_long_call_says_that_it_is_alive(
    sandbox: Sandbox, bench: Workbench, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "ALIVE_AFTER", 0.05)
    monkeypatch.setattr(handlers, "ALIVE_EVERY", 0.05)
    request, order = request_of(bench.scripted_task(bench.scripted({0: [[("sleep", 0.5)]]}), 1), place)
    sandbox.handle(request)
    said = Store.open(place.store).get(alive_object(order.reports))
    assert open_time(order.reports, said, place.run_key(RUN)) > 1.7e9


def test_a_short_call_writes_its_reports_and_nothing_else(sandbox: Sandbox, bench: Workbench, place: Place) -> None:
    request, order = request_of(bench.task("same", [[1]]), place)
    sandbox.handle(request)
    assert [info.name for info in Store.open(place.store).list()] == [order.reports]


def _no_store(*_: object) -> bool:
    raise StoreError("the store is away", retryable=True)


def test_reports_that_cannot_be_written_are_answered(
    sandbox: Sandbox, bench: Workbench, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, order = request_of(bench.task("same", [[1]]), place)
    monkeypatch.setattr(FileStore, "create", _no_store)
    (report,) = reports_of(sandbox.handle(request), order, place)
    assert isinstance(report, Outcome)


def test_long_reports_that_cannot_be_written_are_a_failure(
    sandbox: Sandbox, bench: Workbench, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, order = request_of(bench.task("large", [[7168]] * 1000, inline_limit=8192), place)
    monkeypatch.setattr(FileStore, "create", _no_store)
    (report,) = reports_of(sandbox.handle(request), order, place)
    assert isinstance(report, Failure)
    assert (report.partition, report.failure) == (-1, FailureClass.UNREACHABLE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda request: msgspec.structs.replace(request, version="0.0.0"), "version"),
        (lambda request: msgspec.structs.replace(request, run="another"), "key"),
        (lambda request: msgspec.structs.replace(request, order="QUJD"), "key"),
        (lambda request: msgspec.structs.replace(request, order="not Base64!"), "key"),
    ],
    ids=["another version", "another run", "forged", "garbage"],
)
def test_handler_refuses_orders_of_another_deployment(
    sandbox: Sandbox, bench: Workbench, place: Place, change: Callable[[Request], Request], problem: str
) -> None:
    script = bench.scripted({})
    request, _ = request_of(bench.scripted_task(script, 1), place)
    assert sandbox.handle(change(request)).problem == problem
    assert script.times(0) == 0


def test_handler_reports_an_order_missing_from_the_store(sandbox: Sandbox, bench: Workbench, place: Place) -> None:
    task = bench.task("same", [["x" * 1000]])
    order = Order(task, "runs/conformance/functions/stage/reports/s-0/0", 30.0, 6 << 20)
    request = msgspec.json.decode(encode_request(order, place.run_key(RUN), 500), type=Request)
    Store.open(place.store).delete([f"{order.reports}.order"])
    assert sandbox.handle(request).problem == "order"


@pytest.mark.parametrize("key", ["", "short", "!" * 44])
def test_a_function_without_a_key_runs_nothing(key: str, bench: Workbench, sandbox: Sandbox, place: Place) -> None:
    request, _ = request_of(bench.task("same", [[1]]), place)
    handler = Handler({KEY_VARIABLE: key})
    assert handler.handle(request, 30.0, _MEMORY).problem == "no key"
    handler.close()
