"""Each test is a command of its own, without the profile of an earlier command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from treadle.cli.common import hints


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TREADLE_PROFILE", raising=False)
    token = hints._given.set("")  # private: the value outlives a command in one process
    yield
    hints._given.reset(token)
