"""The isolated executor keeps every promise of the executor interface, though it shares only the store."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator

import pytest

from treadle.executors.isolated.executor import IsolatedExecutor
from treadle.executors.testing import ExecutorTests, Place
from treadle.executors.testing.workbench import SECRET


class TestIsolatedExecutor(ExecutorTests):
    @pytest.fixture
    async def executor(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[IsolatedExecutor]:
        monkeypatch.setenv("TEMPORAL_API_KEY", "not for workers")
        name, value = SECRET
        environment = {f"TREADLE_SECRET_{name.upper()}": value, "TMPDIR": tempfile.gettempdir()}
        executor = IsolatedExecutor(key_file=place.key_file, slots=2, start_seconds=3, environment=environment)
        yield executor
        await executor.stop()
