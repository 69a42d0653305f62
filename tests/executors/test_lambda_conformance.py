"""AWS Lambda, as far as the emulator resembles it, keeps every guarantee of the executor interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from emulators.lambda_place import LambdaPlace, lambda_place

from treadle.executors import Place
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path_factory.mktemp("lambda"), concurrency=8) as place:  # cancelled calls continue there
        yield place


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory, functions: LambdaPlace) -> str:
    """One deployment for all tests, so sandboxes stay warm."""
    key_file = str(tmp_path_factory.mktemp("key") / "key")
    name, value = SECRET
    functions.deploy(key_file, environment={f"TREADLE_SECRET_{name.upper()}": value})
    return key_file


class _Ending(FunctionExecutor):
    """Ends its idle sandboxes when it is stopped, which Lambda may do at any time."""

    functions: LambdaPlace

    async def stop(self) -> None:
        await super().stop()
        self.functions.emulator.end_sandboxes()


class TestLambda(ExecutorTests):
    @pytest.fixture
    def place(self, tmp_path: Path, key_file: str) -> Place:
        return Place(f"file://{tmp_path}/store", key_file, str(tmp_path / "host"))

    @pytest.fixture
    async def executor(
        self, place: Place, functions: LambdaPlace, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[FunctionExecutor]:
        for name, value in functions.emulator.credentials.items():
            monkeypatch.setenv(name, value)
        executor = _Ending("lambda", functions.invoker(), key_file=place.key_file, slots=2)
        executor.functions = functions
        yield executor
        await FunctionExecutor.stop(executor)
