"""The deployed package, through the API, with a real S3 server that fails one request in twenty."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from emulators.lambda_emulator import ENTRY, REGION, LambdaEmulator
from emulators.lambda_place import lambda_place
from emulators.lambda_s3 import FlakyS3
from emulators.packages import local_package

from treadle.executors import Place
from treadle.executors.aws.invoker import LambdaInvoker, function_name
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.program import Outcome
from treadle.executors.testing import Workbench
from treadle.executors.worker.environment import KEY_VARIABLE
from treadle.primitives import sealing
from treadle.primitives.testing.s3 import S3Endpoint, seaweedfs

ROLE = "arn:aws:iam::123456789012:role/treadle"


@pytest.fixture
def flaky() -> Iterator[tuple[S3Endpoint, FlakyS3]]:
    with seaweedfs() as endpoint, FlakyS3(endpoint.url) as proxy:
        yield endpoint, proxy


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[LambdaEmulator]:
    with lambda_place(tmp_path / "code", concurrency=3) as place:
        yield place.emulator


def create(emulator: LambdaEmulator, name: str, environment: dict[str, str]) -> Any:
    """Create a function as `treadle deploy lambda` does. Returns when it can be called."""
    client = boto3.client("lambda", region_name=REGION, endpoint_url=emulator.endpoint)
    client.create_function(
        FunctionName=name,
        Runtime="python3.11",
        Role=ROLE,
        Handler=ENTRY,
        Code={"ZipFile": local_package().data},
        Timeout=60,
        MemorySize=1024,
        Environment={"Variables": environment},
    )
    client.get_waiter("function_active_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0, "MaxAttempts": 10})
    found = client.get_function(FunctionName=name)["Configuration"]
    client.close()
    return found


async def test_deployed_package_runs_tasks_over_an_object_store_with_sporadic_failures(
    tmp_path: Path,
    flaky: tuple[S3Endpoint, FlakyS3],
    emulator: LambdaEmulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, proxy = flaky
    known = endpoint.environment | {"AWS_ENDPOINT_URL": proxy.url}
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    key_file = str(tmp_path / "key")
    key = base64.b64encode(sealing.load_or_create_key(key_file)).decode()
    emulator.functions.role_environment = known
    about = create(emulator, function_name("treadle", 1024), {KEY_VARIABLE: key})
    assert about["CodeSize"] == len(local_package().data)
    invoker = LambdaInvoker("treadle", [1024], region=REGION, endpoint=emulator.endpoint, seconds=60)
    executor = FunctionExecutor("lambda", invoker, key_file=key_file, slots=3)
    bench = Workbench(executor, Place("s3://treadle/deployed", key_file, ""), tmp_path)
    tasks = [bench.task("large", [[100_000 * (index + 1)]]) for index in range(12)]
    waiting = iter(tasks)
    sizes: dict[str, int] = {}

    async def serve(slot: int) -> None:
        for task in waiting:
            (report,) = await bench.run(task, slot)
            assert isinstance(report, Outcome), report
            sizes[task.id] = len((await asyncio.to_thread(bench.records, report))[0])

    await asyncio.gather(*(serve(slot) for slot in range(3)))
    assert [sizes[task.id] for task in tasks] == [100_000 * (index + 1) // 256 * 256 for index in range(12)]
    assert proxy.count["failed"] > 0
    assert {one.error for one in emulator.invocations} == {""}
    await executor.stop()


def test_the_emulated_api_knows_what_boto3_asks_of_a_function(
    emulator: LambdaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emulator.credentials.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("lambda", region_name=REGION, endpoint_url=emulator.endpoint)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_function(FunctionName="f")
    data = _small_zip()
    common = {"Role": ROLE, "Handler": ENTRY, "Runtime": "python3.11"}
    made = client.create_function(FunctionName="f", Code={"ZipFile": data}, Tags={"made-by": "treadle"}, **common)
    assert (made["State"], made["MemorySize"], made["Timeout"]) == ("Pending", 128, 3)
    with pytest.raises(client.exceptions.ResourceConflictException):
        client.create_function(FunctionName="f", Code={"ZipFile": data}, **common)
    with pytest.raises(client.exceptions.ResourceConflictException):
        client.update_function_code(FunctionName="f", ZipFile=data)
    wait = {"Delay": 0, "MaxAttempts": 10}
    client.get_waiter("function_active_v2").wait(FunctionName="f", WaiterConfig=wait)
    client.update_function_configuration(
        FunctionName="f",
        MemorySize=512,
        Timeout=900,
        Environment={"Variables": {"A": "b"}},
        EphemeralStorage={"Size": 1024},
    )
    client.get_waiter("function_updated_v2").wait(FunctionName="f", WaiterConfig=wait)
    client.put_function_event_invoke_config(FunctionName="f", MaximumRetryAttempts=0, MaximumEventAgeInSeconds=60)
    client.put_function_concurrency(FunctionName="f", ReservedConcurrentExecutions=7)
    said = client.get_function(FunctionName="f")
    assert said["Configuration"]["Environment"] == {"Variables": {"A": "b"}}
    assert (said["Concurrency"]["ReservedConcurrentExecutions"], said["Tags"]) == (7, {"made-by": "treadle"})
    assert client.get_function_event_invoke_config(FunctionName="f")["MaximumRetryAttempts"] == 0
    assert [one["FunctionName"] for one in client.list_functions()["Functions"]] == ["f"]
    client.delete_function(FunctionName="f")
    assert client.list_functions()["Functions"] == []
    client.close()


def _small_zip() -> bytes:
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.py", "")
    return buffer.getvalue()
