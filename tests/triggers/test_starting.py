"""A caller that waits for the end of a run gets it, for any errors in the meantime."""

from __future__ import annotations

import asyncio

import pytest

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.triggers import start_requests
from treadle.triggers.start_requests import RunStarted, StartOrder, end_of


class Troubled:
    """A Starter whose first answers are errors."""

    def __init__(self) -> None:
        self.troubles: list[Exception] = [KeyError("a defect"), Unreachable("nobody is there")]

    async def start(self, order: StartOrder) -> RunStarted:
        raise NotImplementedError

    async def active(self, workflow: str, trigger: str) -> int:
        raise NotImplementedError

    async def wait(self, run: str) -> None:
        if self.troubles:
            raise self.troubles.pop()


async def test_a_run_whose_end_cannot_be_awaited_now_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_requests, "AGAIN", 0.0)
    troubled = Troubled()
    await asyncio.wait_for(end_of(troubled, "run"), 60)
    assert troubled.troubles == []
