"""The local executor keeps every guarantee of the executor interface."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from treadle.executors import Place
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET


class TestLocalExecutor(ExecutorTests):
    @pytest.fixture
    async def executor(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalExecutor]:
        monkeypatch.setenv("TEMPORAL_API_KEY", "not for workers")
        monkeypatch.setenv("TREADLE_SECRET_TOKEN", SECRET[1])
        executor = LocalExecutor(
            run_key=place.run_key, slots=2, host_root=place.host_root, secrets=dict([SECRET]).__getitem__
        )
        yield executor
        await executor.stop()
