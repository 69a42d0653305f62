"""The interpreter: one fixed Temporal workflow that carries out the scheduler's instructions.

It has no user code and no data. Recorded histories in tests/orchestrator/histories pin its commands and their order; a
change that would break a running run fails there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any, Literal

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, RetryState, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    import msgspec
    from msgspec.structs import replace

    from treadle.dsl.expressions import ExpressionError
    from treadle.dsl.templates import render
    from treadle.primitives.run_paths import parent_run

    from ..dispatcher.orders import NodeOrder, Ticket, order_of
    from ..plan.plan import BarrierNode, Child
    from ..protocol import messages
    from ..protocol.messages import (
        Ending,
        NodeReport,
        Opened,
        ParentSteering,
        RunStart,
        Steering,
    )
    from ..scheduler.instructions import (
        Complete,
        Event,
        Fail,
        Hold,
        Instruction,
        Limit,
        NodeGrouped,
        Pause,
        Problem,
        Release,
        Rest,
        RunNode,
        Stop,
        Unpause,
    )
    from ..scheduler.scheduler import Scheduler
    from .activity_calls import end_run, open_run, run_node, run_node_locally
    from .child_workflows import Children
    from .reports import answer_to, cause_of, events_of, unexpected


@workflow.defn(name=messages.WORKFLOW)
class RunWorkflow:
    """One run. The workflow's id is the run's id."""

    @workflow.init
    def __init__(self, start: RunStart) -> None:
        """Sets the initial state here, so that queries and updates before the start find it."""
        self._start = start
        self._paused, self._limits = start.paused, dict(start.limits)
        self._since = dict(start.since)
        """Node -> start of its first group."""
        self._steered = start.steered
        self._tickets = 0
        self._inbox: list[Event] = []
        self._activities: dict[tuple[str, int], workflow.ActivityHandle[NodeReport]] = {}
        """By first node and task group."""
        self._stopped: set[tuple[str, int]] = set()
        """Keys of the activities that were ordered to stop."""
        self._local = False
        """True: the first order runs in a local activity, since the driver of the workflow task has it anyway."""
        self._first: dict[str, str] = {}
        """Node -> the first node of its activity."""
        self._waiting: set[asyncio.Task[None]] = set()
        self._children = Children({}, {}, self._inbox)
        self._digest = ""
        self._scheduler: Scheduler | None = None
        self._stages: set[str] = set()
        self._stopping = "cancel"
        self._points: set[str] = set()
        """Barriers whose passing is published. Empty without lifecycle events."""
        self._passed: set[str] = set()

    @workflow.run
    async def run(self, start: RunStart) -> dict[str, Any]:
        with _ending():
            return await self._run(start)

    async def _run(self, start: RunStart) -> dict[str, Any]:
        opened = await self._open(start)
        graph = opened.graph
        children = {node.id: node.workflow for node in graph.nodes if isinstance(node, Child)}
        self._children, self._digest = Children(children, opened.runs, self._inbox), opened.digest
        self._stages = {stage for node in graph.nodes if node.id not in children for stage in node.stages}
        self._points = {node.id for node in graph.nodes if opened.tells and isinstance(node, BarrierNode)}
        # With lifecycle events, the node itself runs first and emits its start.
        wide = {} if opened.tells else opened.groups
        groups = {node: NodeGrouped(node, tuple(known), opened.seats) for node, known in wide.items()}
        self._scheduler = Scheduler(graph, opened.env, opened.done, groups=groups, ahead=opened.ahead)
        self._inbox[:0] = [Limit(stage, count) for stage, count in start.limits.items()]
        self._inbox[:0] = [Pause()] if start.paused else []
        self._local = opened.ahead > 0
        heard = opened.tells or parent_run(start.run)  # the parent's resumptions need a child's end
        return await (self._told(opened) if heard else self._finish(opened))

    # -- steering

    @workflow.update(name=messages.STEER)
    def steer(self, request: Steering) -> None:
        if request.action == "limit":
            self._limit(request.stage, request.concurrency)
        else:
            self._rest(request.action == "pause")

    @workflow.signal(name=messages.STEER)
    def steer_with_parent(self, request: ParentSteering) -> None:
        """Pause or continue as the parent requests. Old requests, and those for another resumption, are ignored."""
        if request.resumption == self._start.resumption and request.number > self._steered:
            self._steered = request.number
            self._rest(request.action == "pause")

    def _rest(self, paused: bool) -> None:
        if self._paused != paused:
            self._paused = paused
            self._stopping = "drain" if paused else self._stopping
            self._inbox.append(Pause() if paused else Unpause())

    def _limit(self, stage: str, concurrency: int) -> None:
        self._limits[stage] = concurrency
        self._stopping = "drain"
        self._inbox.append(Limit(stage, concurrency))

    @steer.validator
    def _may_steer(self, request: Steering) -> None:
        update = workflow.current_update_info()
        if request.execution != workflow.info().run_id or update is None or request.id != update.id:
            raise ApplicationError("the request was made for another execution of the run", type=messages.STALE)
        if request.action == "limit":
            self._may_limit(request.stage, request.concurrency)
        elif self._paused == (request.action == "pause"):
            text = "the run is paused already" if self._paused else "the run is not paused"
            raise ApplicationError(text, type="refused")

    def _may_limit(self, stage: str, concurrency: int) -> None:
        if stage in self._children:
            run = self._children.run_of(self._start.run, stage)
            raise ApplicationError(f"stage {stage} is run {run}; set a limit on a stage of that", type="refused")
        if self._stages and stage not in self._stages:
            raise ApplicationError(
                f"there is no stage {stage}; there are: {', '.join(sorted(self._stages))}", type="refused"
            )
        if concurrency < 1:
            raise ApplicationError("the concurrency must be at least 1", type="refused")

    @workflow.query(name=messages.STOPPING)
    def stopping(self) -> str:
        """`drain` or `cancel`: the treatment of running attempts in an activity that was ordered to stop."""
        return self._stopping

    @workflow.query(name="paused")
    def paused(self) -> bool:
        return self._paused

    # -- carrying out

    async def _finish(self, opened: Opened) -> dict[str, Any]:
        assert self._scheduler is not None
        with _ending():
            await self._drive(self._scheduler)
        if opened.left:
            text = f"what had failed is done; not begun: {', '.join(opened.left)}"
            raise ApplicationError(text, type=messages.LEFT, non_retryable=True)
        return self._outputs(opened)

    async def _told(self, opened: Opened) -> dict[str, Any]:
        """Like _finish, then publish the end. That can neither change the end nor delay it for long."""
        try:
            result = await self._finish(opened)
        except ApplicationError as error:
            problem = Problem(error.type or "internal", error.message, *_node_of(error))
            await self._tell("failed", problem=problem)
            raise
        except asyncio.CancelledError:
            await self._tell("cancelled")
            raise
        await self._tell("completed", outputs=result["outputs"])
        return result

    async def _tell(self, state: Literal["completed", "failed", "cancelled"], **more: Any) -> None:
        assert self._scheduler is not None
        more |= {"skipped": list(self._scheduler.skipped), "passed": list(self._newly_passed())}
        ending = Ending(self._start.run, self._start.resumption, state, **more)
        with contextlib.suppress(ActivityError, asyncio.CancelledError):
            await end_run(ending)

    def _newly_passed(self) -> tuple[str, ...]:
        """Barriers whose passing has not been published."""
        assert self._scheduler is not None
        passed = [node for node in self._scheduler.summaries if node in self._points and node not in self._passed]
        self._passed.update(passed)
        return tuple(passed)

    async def _open(self, start: RunStart) -> Opened:
        """Open the run in the driver that has the workflow task. If that fails, in any driver, with retries."""
        about = [start, workflow.info().workflow_start_time.strftime("%Y-%m-%dT%H:%M:%SZ")]
        try:
            return await self._opened(about, locally=True)
        except FailureError as error:
            known = isinstance(error, ApplicationError) and error.non_retryable
            if known or is_cancelled_exception(error):
                raise
        return await self._opened(about)

    async def _opened(self, about: list[Any], *, locally: bool = False) -> Opened:
        try:
            opened = await open_run(about, locally=locally)
        except FailureError as error:
            cause = cause_of(error)
            if cause is not None and (cause.non_retryable or not locally):
                raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from error
            raise
        if opened.ticket != Ticket(workflow.info().run_id):
            problem = messages.forged("the plan is that of another execution")
            raise ApplicationError(problem.message, type=problem.failure, non_retryable=True)
        return opened

    async def _drive(self, scheduler: Scheduler) -> None:
        todo = [instruction for event in self._inbox for instruction in scheduler.handle(event)]
        self._inbox.clear()  # requests from before the graph was known
        todo += scheduler.start()
        # The server hears of other nodes only when a local activity has ended.
        self._local &= sum(isinstance(one, RunNode) for one in todo) == 1
        try:
            while True:
                for instruction in todo:
                    if self._obey(instruction):
                        return
                await workflow.wait_condition(lambda: bool(self._inbox))
                event = self._inbox.pop(0)
                if scheduler.in_groups and is_long():
                    scheduler.handle(Rest())  # groups could exceed the limit of a history
                todo = scheduler.handle(event)
                self._continue_as_new_when_long(scheduler, todo)
        finally:
            if not isinstance(sys.exception(), GeneratorExit):  # an abandoned coroutine has no loop
                await self._stop_all()

    def _obey(self, instruction: Instruction) -> bool:
        """Carry out an instruction. True: the graph is over."""
        match instruction:
            case RunNode(node) if node in self._children:
                self._children.start(self._start, self._digest, instruction)
            case RunNode():
                self._run_node(instruction)
            case Hold(node):
                self._children.hold(node)
            case Release(node):
                self._children.release(node)
            case Stop(node):
                self._children.stop(node)
                first = self._first.get(node)
                for key in [key for key in self._activities if key[0] == first]:
                    self._stop_activity(key)
            case Complete():
                return True
            case Fail(problem):
                details = msgspec.to_builtins(problem)
                raise ApplicationError(problem.message, details, type=problem.failure, non_retryable=True)
        return False

    def _run_node(self, run: RunNode) -> None:
        self._first |= dict.fromkeys([run.node, *(one.node for one in run.then)], run.node)
        self._tickets += 1
        order = replace(
            self._order(run),
            since=self._since.setdefault(run.node, workflow.time()) if run.group >= 0 else 0.0,
            passed=self._newly_passed(),
            then=tuple(map(self._order, run.then)),
            ticket=Ticket(workflow.info().run_id, self._tickets),
        )
        self._begin(order, locally=self._local and self._tickets == 1)

    def _begin(self, order: NodeOrder, *, locally: bool = False) -> None:
        key = order.node, order.group
        handle = self._activities[key] = run_node_locally(order) if locally else run_node(order)
        if key in self._stopped:
            handle.cancel()
        task = asyncio.create_task(self._hear(order, handle, locally))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _order(self, run: RunNode) -> NodeOrder:
        return order_of(self._start.run, run, self._start.resumption, self._start.assume)

    async def _hear(self, order: NodeOrder, handle: workflow.ActivityHandle[NodeReport], locally: bool) -> None:
        nodes = [order.node, *(one.node for one in order.then)]
        try:
            report = answer_to(order, await handle)
        except asyncio.CancelledError:
            report = NodeReport(stopped=True)
        except FailureError as error:
            # The driver died before it had stopped the activity as ordered. The server then does not retry.
            state = error.retry_state if isinstance(error, ActivityError) else None
            stopped = is_cancelled_exception(error) or state is RetryState.CANCEL_REQUESTED
            report = NodeReport(stopped=True) if stopped else NodeReport(problem=unexpected(nodes[0], error))
            report.handed_over = locally and not stopped
        if report.handed_over and locally:
            return self._begin(order)
        key = order.node, order.group
        self._activities.pop(key, None)
        self._stopped.discard(key)
        self._inbox += events_of(nodes, order.group, report)
        return None

    def _stop_activity(self, key: tuple[str, int]) -> None:
        self._stopped.add(key)
        self._activities[key].cancel()

    async def _stop_all(self) -> None:
        self._stopping = "cancel"
        for key in self._activities:
            self._stop_activity(key)
        self._children.stop_all()
        await workflow.wait_condition(lambda: not self._activities and not self._children.running)

    def _continue_as_new_when_long(self, scheduler: Scheduler, todo: list[Instruction]) -> None:
        """Continue as a new execution between nodes, since running activities would be stopped."""
        if is_long() and not scheduler.running and not any(isinstance(one, Complete | Fail) for one in todo):
            start = replace(self._start, paused=self._paused, limits=self._limits, since=self._since)
            workflow.continue_as_new(replace(start, steered=self._steered))

    def _outputs(self, opened: Opened) -> dict[str, Any]:
        assert self._scheduler is not None
        try:
            values = render(opened.outputs, self._scheduler.env)
        except ExpressionError as error:
            raise ApplicationError(f"outputs: {error}", type="user error", non_retryable=True) from error
        if (size := len(json.dumps(values))) > messages.PAYLOAD:
            text = f"the outputs have {size:,} bytes, and {messages.PAYLOAD:,} are allowed; write large values to files"
            raise ApplicationError(text, type="user error", non_retryable=True)
        execution = workflow.info().first_execution_run_id
        return {"outputs": values, "skipped": list(self._scheduler.skipped), "execution": execution}


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Ends the run with a failure class on a defect. Otherwise the server would retry the workflow task for ever."""
    try:
        yield
    except FailureError:
        raise
    except Exception as defect:
        text = f"{type(defect).__name__}: {defect}. Please report it."
        raise ApplicationError(text, type="internal", non_retryable=True) from defect


def is_long() -> bool:
    """Returns whether the history should be cut."""
    return workflow.info().is_continue_as_new_suggested()


def _node_of(error: ApplicationError) -> tuple[str, ...]:
    """The node of a failed run (see _obey)."""
    known = error.details[0] if error.details else {}
    return (str(known.get("node", "")),) if isinstance(known, dict) else ()
