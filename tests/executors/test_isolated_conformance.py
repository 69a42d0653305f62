"""The isolated executor keeps every guarantee of the executor interface, although it shares only the store."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from treadle.executors import Place
from treadle.executors.isolated.executor import IsolatedExecutor
from treadle.executors.program import Call, MapRecords
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET, Workbench, failure_of
from treadle.primitives.errors import FailureClass, UsageError


class TestIsolatedExecutor(ExecutorTests):
    @pytest.fixture
    async def executor(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[IsolatedExecutor]:
        monkeypatch.setenv("TEMPORAL_API_KEY", "not for workers")
        name, value = SECRET
        tests = str(Path(__file__).parents[1])
        variables = {"TMPDIR": tempfile.gettempdir(), "PYTHONPATH": tests}
        environment = {f"TREADLE_SECRET_{name.upper()}": value, **variables}
        executor = IsolatedExecutor(key_file=place.key_file, slots=2, environment=environment)
        yield executor
        await executor.stop()

    async def test_an_attempt_that_writes_over_its_answer_is_lost(self, bench: Workbench) -> None:
        task = bench.task("same", [[1]])
        op = MapRecords("stage", Call("executors.parity_functions:scribble"))
        program = msgspec.structs.replace(task.program, ops=(op,))
        (report,) = await bench.run(msgspec.structs.replace(task, program=program))
        assert failure_of(report).failure is FailureClass.WORKER_LOST
        await bench.assert_usable()

    async def test_every_attempt_is_a_process_with_an_empty_folder_of_its_own(self, bench: Workbench) -> None:
        task = bench.task("same", [[1]])
        op = MapRecords("stage", Call("executors.parity_functions:settle"))
        task = msgspec.structs.replace(task, program=msgspec.structs.replace(task.program, ops=(op,)))
        first, second = [bench.records((await bench.run(task))[0])[0] for _ in range(2)]
        assert first["before"] == second["before"] == []
        assert first["process"] != second["process"]
        assert first["folder"] != second["folder"]
        assert not any(name.startswith("treadle-attempt-") for name in os.listdir(tempfile.gettempdir()))

    async def test_a_secret_that_is_not_given_is_refused_with_where_to_name_it(self, bench: Workbench) -> None:
        with pytest.raises(UsageError, match="'other'") as caught:
            await bench.run(bench.task("same", [[1]], secrets=("other",)))
        assert "`secrets`" in caught.value.hint
        await bench.assert_usable()

    async def test_a_process_that_cannot_start_is_refused(
        self, bench: Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def exhausted(pid: int) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(os, "pidfd_open", exhausted)
        with pytest.raises(UsageError, match="Too many open files"):
            await bench.assert_usable()
        monkeypatch.undo()
        await bench.assert_usable()
