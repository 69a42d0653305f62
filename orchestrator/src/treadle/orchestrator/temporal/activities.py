"""The activities of a run: open it, run one node, publish its end. Converts treadle's errors to Temporal's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from treadle.dsl import expressions
from treadle.dsl.model import Spec
from treadle.dsl.templates import template_paths
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import CorruptError, FailureClass, StoreError, TreadleError
from treadle.primitives.run_paths import parent_run
from treadle.primitives.stores.request_counts import counted_for

from ..dispatcher.blocks.lost_blocks import condense, expand
from ..dispatcher.driver_context.run_context import DriverContext, RunContext
from ..dispatcher.ledger.ledger import Fenced
from ..dispatcher.orders import NodeOrder, Ticket
from ..dispatcher.segments.execute_segment import Desk
from ..dispatcher.segments.failed_segment import BlocksLost, SegmentFailed, kind_of
from ..dispatcher.segments.loop import run_node
from ..dispatcher.segments.wide_segment import Unclosed
from ..environment.home import room_for_blocks
from ..executor_registry.registry import Abilities
from ..lifecycle.emitter import Telling
from ..plan.plan import Child, LoopNode, Plan, Segment, session_plan
from ..planner import RunLocation as PlanSite
from ..planner import make_plan
from ..protocol import messages, payload_limits
from ..protocol.encryption import RefusedMessage
from ..protocol.messages import Ending, NodeReport, Opened, Received, RunStart
from ..reuse.cache_lookup import keep, take_over
from ..reuse.stage_rerun import narrowed
from ..run_store.call_log import SESSION
from ..run_store.child_runs import child_submission, keep_child
from ..run_store.run_files import RunResult, Submission, digest, keep_requests
from ..run_store.uri_policy import check_found
from ..scheduler.instructions import Problem, Summary
from ..scheduler.task_groups import count_of
from ..telemetry.hops import hop
from . import capacity

HEARTBEAT_SECONDS = 0.7
ASKING_SECONDS = 2.0
"""Seconds between two checks whether attempts may still end. A pausing run may be cancelled."""
AHEAD = 16
"""Maximum of further nodes in one activity."""
BRIEF = 0.5
"""Seconds that a local activity waits for its work. Longer work is handed over to an activity of the server."""
HANDED_OVER = 2.0
"""Seconds after which handed-over work stops, unless an activity takes it: another driver may have the order."""
_log = logging.getLogger(__name__)


class _Work(NamedTuple):
    """The work of an order and of the orders that follow."""

    desk: Desk
    task: asyncio.Task[NodeReport]


class Activities:
    """The activities, with the resources of the driver process: store, key, slots, client."""

    def __init__(self, site: DriverContext, client: Client, telling: Telling) -> None:
        self._site, self._client, self._telling = site, client, telling
        self._handed_over: dict[Ticket, _Work] = {}
        self._active = 0
        self._ended = time.monotonic()

    def idle_seconds(self) -> float:
        """Seconds since the last activity ended. 0: one runs."""
        return 0.0 if self._active else time.monotonic() - self._ended

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._ended = time.monotonic()

    @activity.defn(name=messages.OPEN_RUN)
    async def open_run(self, start: RunStart, started: str) -> Opened:
        """Verify the submission, plan it the first time, and find the nodes that are already done."""
        with self._busy():
            try:
                async with _heartbeats(tuple):
                    drivers = await capacity.drivers_there(self._client, self._site)
                    opened = payload_limits.check_opened(await asyncio.to_thread(self._open, start, started, drivers))
            except TreadleError as error:
                kind, passes = str(kind_of(error)), isinstance(error, StoreError) and error.retryable
                if not passes:
                    await self._telling.run_refused(start, started, Problem(kind, str(error)))
                raise ApplicationError(str(error), type=kind, non_retryable=not passes) from error
            except Exception as defect:  # noqa: BLE001  # as of a node: it must end the run, not retry for ever
                _log.exception("opening run %s", start.run)
                problem = _defect(defect)
                await self._telling.run_refused(start, started, problem)
                raise ApplicationError(problem.message, type=problem.failure, non_retryable=True) from None
            await self._telling.run_started(start)
            opened.ticket = Ticket(activity.info().workflow_run_id or "")
            if opened.groups:
                opened.seats = capacity.there_are(self._site, drivers.alive)
            return opened

    @activity.defn(name=messages.RUN_NODE)
    async def run_node(self, order: NodeOrder) -> NodeReport:
        """Run a segment, a task group or a loop to its end, then the orders that follow.

        Committed work is found in its ledger and does not run again.
        """
        if order.ticket.execution != activity.info().workflow_run_id:
            raise RefusedMessage("the order was made for another execution")
        with self._busy():
            work = self._handed_over.pop(order.ticket, None) or self._begin(order)
            if activity.info().is_local:
                return await self._briefly(order, work)
            async with _heartbeats(work.desk.heartbeat):
                return await work.task

    def _begin(self, order: NodeOrder) -> _Work:
        desk = Desk()
        return _Work(desk, spawn(self._orders(order, desk)))

    async def _briefly(self, order: NodeOrder, work: _Work) -> NodeReport:
        """The report of short work. Longer work continues, and the activity that follows takes it."""
        try:
            done, _ = await asyncio.wait([work.task], timeout=BRIEF)
        except asyncio.CancelledError:
            work.task.cancel()
            return await work.task
        if done:
            return work.task.result()
        self._handed_over[order.ticket] = work
        asyncio.get_running_loop().call_later(HANDED_OVER, self._drop, order.ticket)
        return NodeReport(handed_over=True, ticket=order.ticket)

    def _drop(self, ticket: Ticket) -> None:
        if work := self._handed_over.pop(ticket, None):
            work.task.cancel()

    async def stop(self) -> None:
        """Stop work that no activity has taken."""
        left, self._handed_over = list(self._handed_over.values()), {}
        for work in left:
            work.task.cancel()
        await asyncio.gather(*(work.task for work in left), return_exceptions=True)

    async def _orders(self, order: NodeOrder, desk: Desk) -> NodeReport:
        before = dict[str, Summary]()
        orders = (order, *order.then)
        for one in orders:
            report = await self._run_node(one, desk)
            small = payload_limits.is_small(report, AHEAD)
            if one is orders[-1] or report.summary is None or not small or desk.stopping:
                break
            before[one.node] = report.summary
        await asyncio.to_thread(self._keep_requests, order.run)
        told = payload_limits.after(before, report)
        if told.closed or told.groups:
            drivers = await capacity.drivers_there(self._client, self._site)
            told.seats = capacity.there_are(self._site, drivers.alive)
        told.ticket = order.ticket
        return told

    def _keep_requests(self, run: str) -> None:
        with contextlib.suppress(StoreError):  # a missing cost record must not fail the run
            keep_requests(self._site.files(run.partition("/")[0]))

    async def _run_node(self, order: NodeOrder, desk: Desk) -> NodeReport:
        desk.node, desk.iteration = order.node, ""
        with self._site.telemetry.node(order.run, order.node, activity.info().attempt):
            async with self._telling.node(order) as hand_over:
                report = payload_limits.bounded(await self._report(order, desk), order.node)
                hand_over(report)
        return report

    @activity.defn(name=messages.END_RUN)
    async def end_run(self, ending: Ending) -> Received:
        """Store the result of a child run for its parent's resumptions, and emit the end of the run."""
        with self._busy():
            async with _heartbeats(tuple):
                if parent_run(ending.run) and ending.state == "completed":
                    files = self._site.files(ending.run)
                    await asyncio.to_thread(files.create, "result", RunResult(ending.outputs))
                await self._telling.run_ended(ending)
        return Received()

    # -- open

    def _open(self, start: RunStart, started: str, drivers: capacity.Drivers) -> Opened:
        with counted_for(start.run), hop(start.run, "open run"):
            return self._opened(start, started, drivers)

    def _opened(self, start: RunStart, started: str, drivers: capacity.Drivers) -> Opened:
        files = self._site.files(start.run)
        submission, started = self._submission(start, started)
        plan, is_new = files.find(Plan, "plan"), False
        if plan is None:
            made = self._plan(submission, start.run, started, drivers)
            plan = files.keep("plan", made)
            is_new = plan is made
        run = self._site.open(start.run, activity.info().workflow_run_id, (submission, plan))
        stages = [node.id for node in run.plan.graph.nodes if isinstance(node, Child)]
        runs = {stage: ids[-1] for stage, ids in files.children(stages).items()}
        done = take_over(run, is_new=is_new) | _ended(self._site, runs)
        wanted, left = narrowed(run.plan.graph, start.only, done)
        graph = messages.slim(wanted)
        groups = {node: groups for node, groups in _unclosed_groups(run, done).items() if node not in left}
        env, outputs, tells = _needed_env(run), run.plan.outputs, self._telling.on
        opened = Opened(graph, env, outputs, done, tells, groups, digest=digest(submission), left=left, runs=runs)
        # One node at a time lets hosts take turns, and delivers lifecycle events at once.
        opened.ahead = AHEAD if self._site.one_host and not tells else 0
        return opened

    def _submission(self, start: RunStart, started: str) -> tuple[Submission, str]:
        """(the run's submission, its first start)."""
        parent = parent_run(start.run)
        files = self._site.files(parent or start.run)
        submission = files.load(Submission, "spec")
        if digest(submission) != start.digest:
            raise CorruptError(f"run {files.run}: the submission in the store is not the one that was started")
        if not parent:
            return submission, started
        began = files.load(Plan, "plan").started
        wanted = child_submission(submission, began, start.run, start.bindings)
        return keep_child(files, self._site.files(start.run), wanted), began

    def _plan(self, submission: Submission, run: str, started: str, drivers: capacity.Drivers) -> Plan:
        if SESSION in submission.memo:
            executor = submission.executor or self._site.default
            return session_plan(started, executor, Abilities(self._site.pools.executors)[executor])
        spec = Spec.model_validate(submission.spec)
        about = {"id": run, "startTime": started}
        site = msgspec.structs.replace(plan_site(self._site), drivers=drivers.alive, lent=drivers.lent)
        if submission.executor:
            site = msgspec.structs.replace(site, default=submission.executor)
        plan = make_plan(spec, submission.inputs, about, submission.functions, Path(submission.base), site)
        check_found(submission, plan)
        return plan

    # -- nodes

    async def _report(self, order: NodeOrder, desk: Desk) -> NodeReport:
        work = spawn(self._work(order, desk))
        try:
            return _report_of(await asyncio.shield(work))
        except SegmentFailed as failed:
            return NodeReport(problem=failed.problem)
        except BlocksLost as lost:
            return NodeReport(lost=list(lost.blocks))
        except asyncio.CancelledError:
            return await self._stop(work, desk)
        except (CorruptError, StoreError) as error:
            kind = str(kind_of(error))
            if isinstance(error, StoreError) and error.retryable:  # without causes: the server would not store them all
                raise ApplicationError(str(error), type=kind) from None
            return NodeReport(problem=Problem(kind, str(error), order.node))
        except Fenced:
            raise
        except Exception as defect:  # noqa: BLE001  # a defect must end the run with a class, not retry for ever
            _log.exception("node %s of run %s", order.node, order.run)
            return NodeReport(problem=_defect(defect, order.node))

    async def _work(self, order: NodeOrder, desk: Desk) -> Summary | Unclosed | None:
        """Do the work of an order. None: the task group is closed."""
        run = await asyncio.to_thread(self._site.open, order.run, activity.info().workflow_run_id)
        repair = await asyncio.to_thread(expand, run.files, order.repair)
        try:
            return await self._node(run, msgspec.structs.replace(order, repair=repair), desk)
        except BlocksLost as lost:
            raise BlocksLost(await asyncio.to_thread(condense, run.files, run.plan.graph, lost.blocks)) from None

    async def _node(self, run: RunContext, order: NodeOrder, desk: Desk) -> Summary | Unclosed | None:
        result = await run_node(run, order, desk)
        node = run.plan.graph.node(order.node)
        if isinstance(result, Summary) and isinstance(node, Segment | LoopNode):
            await asyncio.to_thread(keep, run, node)
        return result

    async def _stop(self, work: asyncio.Future[Summary | Unclosed | None], desk: Desk) -> NodeReport:
        """Stop the work. Pause and new limits let running attempts end, unless a cancellation follows; other reasons
        kill them."""
        desk.stopping = True
        with contextlib.suppress(asyncio.CancelledError):
            if await self._stop_reason("cancel") == "drain":
                desk.drain()
                while not work.done() and await self._stop_reason("drain") == "drain":
                    await asyncio.wait([work], timeout=ASKING_SECONDS)
        work.cancel()
        try:
            return _report_of(await work)
        except (asyncio.CancelledError, Exception):  # noqa: BLE001  # stopped on request; the error is in the ledger
            return NodeReport(stopped=True)

    async def _stop_reason(self, otherwise: str) -> str:
        """`drain` or `cancel`. `otherwise`: the answer while the workflow does not reply; at first it is to stop at
        once."""
        if activity.is_worker_shutdown():
            return "cancel"
        info = activity.info()
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        try:
            return str(await asyncio.wait_for(handle.query(messages.STOPPING, result_type=str), 2))
        except Exception:  # noqa: BLE001
            return otherwise


def plan_site(site: DriverContext) -> PlanSite:
    """The facts about this driver's site for the planner."""
    budget = room_for_blocks(site.host_root) if site.host_root else 0
    can = Abilities(site.pools.executors)
    known = PlanSite(can, budget, site.store.url, site.one_host, default=site.default)
    if site.hosts is None or site.host_root is None:
        return known
    return msgspec.structs.replace(known, peers=True, lost_hosts=site.hosts.lost_lately(), figures=site.hosts.figures)


def _ended(site: DriverContext, children: Mapping[str, str]) -> dict[str, Summary]:
    """The summaries of nodes whose child runs an earlier resumption finished. `children`: node -> id of its run."""
    found = {node: site.files(run).find(RunResult, "result") for node, run in children.items()}
    return {node: Summary(outputs=result.outputs) for node, result in found.items() if result is not None}


def _unclosed_groups(run: RunContext, done: Collection[str]) -> dict[str, list[int]]:
    """Wide top node -> its open task groups, for nodes whose groups the plan determines."""
    found: dict[str, list[int]] = {}
    for node in run.plan.graph.nodes:
        if isinstance(node, Segment) and 0 < node.group < node.partitions and node.id not in done:
            closed = run.files.closed_groups(node.id)
            found[node.id] = [group for group in range(count_of(node.partitions, node.group)) if group not in closed]
    return found


def _report_of(result: Summary | Unclosed | None) -> NodeReport:
    if result is None:
        return NodeReport(closed=True)
    if isinstance(result, Unclosed):
        return NodeReport(groups=list(result.groups), size=result.size)
    return NodeReport(summary=result)


def _needed_env(run: RunContext) -> dict[str, Any]:
    """`run`, and the inputs that conditions or outputs read. Other inputs stay out of the history."""
    conditions = [expressions.read_paths(node.when) for node in run.plan.graph.nodes if node.when]
    read = {path[1] for path in template_paths(run.plan.outputs).union(*conditions) if path[0] == "inputs"}
    return {"run": run.env["run"], "inputs": {k: v for k, v in run.submission.inputs.items() if k in read}}


def _defect(error: Exception, node: str = "") -> Problem:
    text = f"{type(error).__name__}: {error}"[:2000]
    return Problem(str(FailureClass.INTERNAL), f"{text}; the driver's log has the traceback. Please report it.", node)


@contextlib.asynccontextmanager
async def _heartbeats(tell: Callable[[], Sequence[Any]]) -> AsyncIterator[None]:
    """Heartbeats with the progress for `watch`. They keep a second dispatcher away. Local activities send none."""

    async def beat() -> None:
        while not activity.info().is_local:
            activity.heartbeat(*tell())
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = spawn(beat())
    try:
        yield
    finally:
        task.cancel()
