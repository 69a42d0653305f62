"""A run's coroutine that its worker abandoned is closed by the garbage collector, outside of any workflow."""

from __future__ import annotations

import types
from collections.abc import Generator
from typing import Any

import pytest
from temporalio import workflow

from treadle.orchestrator.plan.plan import Graph
from treadle.orchestrator.protocol.messages import RunStart
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.orchestrator.temporal.workflow import RunWorkflow


class Unfinished(Scheduler):
    """Has no instructions, and is not over."""

    def start(self) -> list[Any]:
        return []


def test_abandoned_run_is_closed_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @types.coroutine
    def suspended(_: object) -> Generator[None, None, None]:
        yield

    monkeypatch.setattr(workflow, "wait_condition", suspended)
    driving = RunWorkflow(RunStart("r", ""))._drive(Unfinished(Graph(()), {}, {}))  # private: one step of the workflow
    driving.send(None)
    monkeypatch.undo()
    driving.close()
