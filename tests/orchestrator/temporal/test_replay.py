"""The present workflow continues runs that were begun by the version in the recorded histories."""

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
from treadle.orchestrator.protocol.messages import RunStart
from treadle.orchestrator.temporal.workflow import RunWorkflow

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.json"))
NAMES = {"map_reduce", "loop", "paused_and_unpaused", "failed", "resumed", "skipped_stage", "parent", "child"}


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


async def replay(path: Path, flow: type[Any]) -> None:
    replayer = Replayer(workflows=[flow], workflow_runner=UnsandboxedWorkflowRunner(), data_converter=plain_converter())
    await replayer.replay_workflow(history(path))


@workflow.defn(name=messages.WORKFLOW)
class Waits(RunWorkflow):
    """Begins with a command that no recorded run has."""

    @workflow.run
    async def run(self, start: RunStart) -> dict[str, Any]:
        await asyncio.sleep(1)
        return await super().run(start)


@workflow.defn(name=messages.WORKFLOW)
class Forgets(RunWorkflow):
    """Ends without the commands of every recorded run."""

    @workflow.run
    async def run(self, start: RunStart) -> dict[str, Any]:
        return {}


def test_there_is_a_history_of_every_kind() -> None:
    assert {path.stem for path in HISTORIES} == NAMES


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_recorded_run_replays(path: Path) -> None:
    await replay(path, RunWorkflow)


@pytest.mark.parametrize("changed", [Waits, Forgets])
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_changed_workflow_is_found_out(path: Path, changed: type[Any]) -> None:
    with pytest.raises(NondeterminismError):
        await replay(path, changed)
