"""Every claim of `treadle.executors.interface`, as tests for any executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..interface import Executor
from ..plugin import Place
from .suite_failures import FailureTests
from .suite_lifetime import LifetimeTests
from .suite_outcomes import OutcomeTests
from .workbench import SECRET, Workbench


class ExecutorTests(OutcomeTests, FailureTests, LifetimeTests):
    """A subclass provides the fixture `executor`: it has two slots, knows the secret `token` of `place`, and is stopped
    at the end."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """A file store, a key, a host folder and a secret. Override it to test with another store."""
        secret = dict([SECRET]).__getitem__
        place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), str(tmp_path / "host"), secret)
        place.run_key("")  # creates the key
        return place

    @pytest.fixture
    async def executor(self) -> Executor:
        raise NotImplementedError("give a fixture `executor`")

    @pytest.fixture
    def bench(self, executor: Executor, place: Place, tmp_path: Path) -> Workbench:
        return Workbench(executor, place, tmp_path)
