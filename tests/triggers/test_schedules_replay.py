"""Ticks, and runs that emit events, continue from the recorded histories of earlier workflows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from treadle.orchestrator.protocol import messages
from treadle.orchestrator.protocol.encryption import plain_converter
from treadle.orchestrator.protocol.messages import Opened, RunStart
from treadle.orchestrator.temporal.workflow import RunWorkflow
from treadle.triggers.schedules.tick_workflow import TICK, Tick, TickWorkflow

HISTORIES = Path(__file__).with_name("histories")
NAMES = ("tick", "tick_refused", "told")


@workflow.defn(name=TICK)
class Waits(TickWorkflow):
    """Begins with a command that no recorded tick has."""

    @workflow.run
    async def run(self, tick: Tick) -> dict[str, Any]:
        await asyncio.sleep(1)
        return await super().run(tick)


@workflow.defn(name=messages.WORKFLOW)
class Silent(RunWorkflow):
    """Does not publish its end."""

    @workflow.run
    async def run(self, start: RunStart) -> dict[str, Any]:
        return await super().run(start)

    async def _told(self, opened: Opened) -> dict[str, Any]:
        return await self._finish(opened)  # private: the test drives a workflow step by step


async def replay(name: str, *flows: type[Any]) -> None:
    replayer = Replayer(workflows=flows, workflow_runner=UnsandboxedWorkflowRunner(), data_converter=plain_converter())
    await replayer.replay_workflow(WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text()))


@pytest.mark.parametrize("name", NAMES)
async def test_recorded_histories_replay(name: str) -> None:
    await replay(name, TickWorkflow, RunWorkflow)


@pytest.mark.parametrize("name", NAMES)
async def test_a_changed_workflow_is_found_out(name: str) -> None:
    with pytest.raises(NondeterminismError):
        await replay(name, Waits, Silent)
