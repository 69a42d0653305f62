"""Actions of an emulated OpenWhisk keep every guarantee of the executor interface."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pyarrow
import pyarrow.parquet
import pytest
from emulators.openwhisk import EmulatedExecutor, deploy, openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.executors import Place
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET, Workbench, failure_of
from treadle.primitives.errors import FailureClass
from treadle.primitives.formats import FileSplit, ReadOptions


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("deployment") / "key")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, key_file: str) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk")) as emulator:
        deploy(emulator, key_file, dict([SECRET]))
        yield emulator


class TestOpenWhisk(ExecutorTests):
    @pytest.fixture(autouse=True)
    def folder_of_this_test(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Temporary files of other processes on this machine do not belong to the attempt."""
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    @pytest.fixture
    def place(self, tmp_path: Path, key_file: str) -> Place:
        return Place(f"file://{tmp_path}/store", key_file, str(tmp_path / "host"))

    @pytest.fixture
    async def executor(self, emulator: OpenWhiskEmulator, key_file: str) -> AsyncIterator[EmulatedExecutor]:
        """Containers stay warm for the next test, unless the test itself stops the executor."""
        executor = EmulatedExecutor(emulator, key_file, slots=2)
        yield executor
        await FunctionExecutor.stop(executor)

    async def test_parquet_without_arrow_is_the_users_error_and_says_what_adds_it(
        self, bench: Workbench, tmp_path: Path
    ) -> None:
        """The package is the real one, without Arrow."""
        file = tmp_path / "x.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), file)
        split = FileSplit(f"file://{file}", 0, 1, file.stat().st_size, "", ReadOptions("parquet"))
        task = bench.task("same", [[1]])
        partition = msgspec.structs.replace(task.partitions[0], input=split)
        (report,) = await bench.run(msgspec.structs.replace(task, partitions=(partition,)))
        failure = failure_of(report)
        assert (failure.failure, failure.retryable) == (FailureClass.USER_ERROR, False)
        assert "deploy with `arrow = true`" in failure.message
