"""Resident functions keep every guarantee of the executor interface, on both emulated providers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulators.lambda_place import LambdaPlace, lambda_place
from emulators.openwhisk import SIZES, deploy, openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.executors import Place
from treadle.executors.functions.attempt import Means
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Invoker
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.executors.openwhisk.invoker import OpenWhiskInvoker
from treadle.executors.resident.coordinator_host import Meeting
from treadle.executors.resident.executor import MemberExecutor
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET

SLOTS = 2
MEETING = Meeting("tcp://127.0.0.1:0")


def means(provider: str, invoker: Invoker, key_file: str) -> Means:
    return FunctionExecutor(provider, invoker, key_file=key_file, rate=Rate(200, least=100)).means


class _Ending(MemberExecutor):
    """Ends its idle sandboxes when it is stopped, which the provider may do at any time."""

    def __init__(self, made: Means, key_file: str, end: Callable[[], Any]) -> None:
        super().__init__(made, MEETING, key_file=key_file, slots=SLOTS)
        self._end = end

    async def stop(self) -> None:
        await super().stop()
        await asyncio.to_thread(self._end)


class _Members(ExecutorTests):
    @pytest.fixture(autouse=True)
    def folder_of_this_test(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    @pytest.fixture
    def place(self, tmp_path: Path, key_file: str) -> Place:
        return Place(f"file://{tmp_path}/store", key_file, str(tmp_path / "host"))


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path_factory.mktemp("lambda")) as place:
        yield place


@pytest.fixture(scope="module")
def lambda_key(tmp_path_factory: pytest.TempPathFactory, functions: LambdaPlace) -> str:
    """One deployment for all tests, so sandboxes stay warm."""
    key_file = str(tmp_path_factory.mktemp("key") / "key")
    name, value = SECRET
    functions.deploy(key_file, environment={f"TREADLE_SECRET_{name.upper()}": value})
    return key_file


class TestMembersOnLambda(_Members):
    @pytest.fixture
    def key_file(self, lambda_key: str) -> str:
        return lambda_key

    @pytest.fixture
    async def executor(
        self, place: Place, functions: LambdaPlace, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[MemberExecutor]:
        for name, value in functions.emulator.credentials.items():
            monkeypatch.setenv(name, value)
        made = means("lambda", functions.invoker(), place.key_file)
        executor = _Ending(made, place.key_file, functions.emulator.end_sandboxes)
        yield executor
        await MemberExecutor.stop(executor)


@pytest.fixture(scope="module")
def openwhisk_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("deployment") / "key")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, openwhisk_key: str) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk")) as emulator:
        deploy(emulator, openwhisk_key, dict([SECRET]))
        yield emulator


@pytest.mark.chaos  # 15 s; the other provider covers it too
class TestMembersOnOpenWhisk(_Members):
    @pytest.fixture
    def key_file(self, openwhisk_key: str) -> str:
        return openwhisk_key

    @pytest.fixture
    async def executor(self, place: Place, emulator: OpenWhiskEmulator) -> AsyncIterator[MemberExecutor]:
        client = OpenWhiskClient(emulator.endpoint, emulator.key, connections=4 * SLOTS)
        made = means("openwhisk", OpenWhiskInvoker(client, sizes=SIZES, seconds=60), place.key_file)
        executor = _Ending(made, place.key_file, emulator.reclaim)
        yield executor
        await MemberExecutor.stop(executor)
