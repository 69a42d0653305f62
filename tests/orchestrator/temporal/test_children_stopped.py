"""Child runs that are stopped as they are started, on a plain event loop."""

from __future__ import annotations

import asyncio

from treadle.orchestrator.protocol.messages import RunStart
from treadle.orchestrator.scheduler.instructions import Event, NodeStopped, RunNode
from treadle.orchestrator.temporal.child_workflows import Children


async def test_child_that_is_stopped_before_its_first_step_is_reported() -> None:
    inbox: list[Event] = []
    children = Children({"sub": "w"}, {}, inbox)
    children.start(RunStart("r", "digest"), "digest", RunNode("sub", {}))
    children.stop_all()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (children.running, inbox) == (False, [NodeStopped("sub")])
