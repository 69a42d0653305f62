"""The isolated executor keeps every promise of the executor interface, though it shares only the store."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from treadle.executors.isolated import executor as executor_module
from treadle.executors.isolated.executor import IsolatedExecutor
from treadle.executors.program import Call, MapRecords
from treadle.executors.testing import ExecutorTests, Place
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
        monkeypatch.setattr(executor_module, "START_SECONDS", 3.0)
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
