"""The child runs of a run, from the workflow's side: real child workflows with ids `<run>/<stage>` or
`<run>/<stage>-2`.

They run the same interpreter with their own histories. The parent's history gets about nine events for each. If the
parent is terminated, the server terminates them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    TemporalError,
    WorkflowAlreadyStartedError,
)

with workflow.unsafe.imports_passed_through():
    from treadle.primitives.errors import FailureClass
    from treadle.primitives.run_paths import child_run

    from ..protocol import messages
    from ..protocol.messages import ParentSteering, RunStart
    from ..scheduler.instructions import Event, NodeDone, NodeFailed, NodeStopped, Problem, RunNode, Summary

STILL_ENDING = 30
"""Seconds to wait until a child of an earlier execution is gone, which was terminated with its parent."""
_Handle = workflow.ChildWorkflowHandle[Any, dict[str, Any]]


class Children:
    """The child runs of one run."""

    def __init__(self, workflows: Mapping[str, str], runs: Mapping[str, str], inbox: list[Event]) -> None:
        """`workflows`: node -> name of its workflow. `runs`: node -> id of its run. `inbox`: receives an event at the
        end of each."""
        self._workflows, self._runs, self._inbox = workflows, runs, inbox
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._handles: dict[str, _Handle] = {}
        self._held: set[str] = set()
        self._resumption, self._steered = 0, 0
        self._signals: set[asyncio.Task[None]] = set()

    def __contains__(self, node: str) -> bool:
        return node in self._workflows

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    def start(self, parent: RunStart, digest: str, run: RunNode) -> None:
        """Start a child. `digest`: of the parent's submission, from which the child makes its own."""
        name = self.run_of(parent.run, run.node)
        self._resumption = parent.resumption
        start = RunStart(name, digest, parent.resumption, parent.assume, bindings=run.bindings)
        task = self._tasks[run.node] = asyncio.create_task(self._run(run.node, start))
        task.add_done_callback(partial(self._never_began, run.node))

    def run_of(self, parent: str, node: str) -> str:
        """The id of a node's run. Histories from before a node could have several runs have no entry in `runs`."""
        return self._runs.get(node) or child_run(parent, node)

    def stop(self, node: str) -> None:
        """Cancel the child if it runs."""
        if node in self._tasks:
            self._tasks[node].cancel()

    def stop_all(self) -> None:
        for node in self._tasks:
            self.stop(node)

    def hold(self, node: str) -> None:
        """Make the child start nothing more until it is released."""
        self._held.add(node)
        self._steer(node, "pause")

    def release(self, node: str) -> None:
        self._held.discard(node)
        self._steer(node, "unpause")

    # -- carrying out

    async def _run(self, node: str, start: RunStart) -> None:
        try:
            event = await self._ended(node, start)
        except asyncio.CancelledError:
            event = NodeStopped(node)
        except (TemporalError, WorkflowAlreadyStartedError) as error:
            event = NodeFailed(node, Problem(str(FailureClass.INTERNAL), f"run {start.run}: {error}", node))
        self._handles.pop(node, None)
        self._held.discard(node)
        del self._tasks[node]
        self._inbox.append(event)

    def _never_began(self, node: str, task: asyncio.Task[None]) -> None:
        """Report the end of a task that was stopped before its first step, since it never entered `_run`."""
        if task.cancelled() and self._tasks.get(node) is task:
            del self._tasks[node]
            self._held.discard(node)
            self._inbox.append(NodeStopped(node))

    async def _ended(self, node: str, start: RunStart) -> Event:
        self._handles[node] = handle = await self._started(node, start)
        if node in self._held:
            self._steer(node, "pause")
        try:
            result = await handle
        except ChildWorkflowError as error:
            return _failed(node, start.run, error, asked=bool(self._tasks[node].cancelling()))
        if result["execution"] != handle.first_execution_run_id:
            return NodeFailed(node, messages.forged(f"the result of run {start.run} is that of another execution"))
        return NodeDone(node, Summary(outputs=result["outputs"]))

    async def _started(self, node: str, start: RunStart) -> _Handle:
        for _ in range(STILL_ENDING):
            with contextlib.suppress(WorkflowAlreadyStartedError):
                return await self._start(node, start)
            await asyncio.sleep(1)
        return await self._start(node, start)

    async def _start(self, node: str, start: RunStart) -> _Handle:
        name = self._workflows[node]
        handle: _Handle = await workflow.start_child_workflow(
            messages.WORKFLOW,
            start,
            id=start.run,
            result_type=dict[str, Any],
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.TERMINATE,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            memo={"workflow": name, "resumption": start.resumption, **_labels()},
            static_summary=name,
        )
        return handle

    def _steer(self, node: str, action: Literal["pause", "unpause"]) -> None:
        """Send a request to a child, in the order of calls. A child that is over needs none."""

        async def send(handle: _Handle, request: ParentSteering) -> None:
            with contextlib.suppress(TemporalError):
                await handle.signal(messages.STEER, request)

        if node in self._handles:
            handle = self._handles[node]
            self._steered += 1
            request = ParentSteering(action, self._resumption, self._steered)
            task = asyncio.create_task(send(handle, request))
            self._signals.add(task)
            task.add_done_callback(self._signals.discard)


def _labels() -> dict[str, Any]:
    """The labels of the parent, so that a search by label finds its children too."""
    labels = workflow.memo_value("labels", {})
    return {"labels": labels} if labels else {}


def _failed(node: str, run: str, error: ChildWorkflowError, *, asked: bool) -> Event:
    """The stage fails with its child's failure, which names the child run."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        known = cause.details[0] if cause.details and isinstance(cause.details[0], dict) else {}
        kind, text = cause.type or str(FailureClass.INTERNAL), f"run {run}: {cause.message}"
        return NodeFailed(node, Problem(kind, text, node, known.get("details", ""), known.get("run") or run))
    if isinstance(cause, CancelledError) and asked:
        return NodeStopped(node)
    how = "cancelled" if isinstance(cause, CancelledError) else "terminated"
    return NodeFailed(node, Problem(str(FailureClass.USER_ERROR), f"run {run} was {how}", node, run=run))
