"""A loop inside one activity: the scheduler runs over its body, once for each iteration, on one shared ledger.

Nested loops share the outermost loop's ledger. Between the segments of a body no wait for the disk is necessary: the
chain's order puts the input's records first. A lost block takes the loop back to the iteration that made it. Everything
still committed is found in the ledger and passes at once, so a loop needs no separate code path for repairs.

The work of one activity for a node of the run's own graph: a segment, a task group or a loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from treadle.dsl.expressions import ExpressionError, evaluate, parse
from treadle.dsl.templates import render
from treadle.executors.program import Outcome
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass, InternalError, StoreError, TreadleError
from treadle.primitives.result import is_storable

from ...plan.plan import CallsFeed, LoopNode, Node, Segment
from ...run_store.run_files import LoopResult, Manifest
from ...scheduler.instructions import (
    Complete,
    Data,
    Escalate,
    Event,
    Fail,
    Instruction,
    NodeDone,
    NodeFailed,
    NodeLost,
    NodeStopped,
    Problem,
    Stop,
    Summary,
)
from ...scheduler.instructions import RunNode as RunNode
from ...scheduler.scheduler import MAXIMUM_REPAIRS, Scheduler
from ..blocks.block_gc import Tidier
from ..driver_context.run_context import RunContext
from ..ledger.group_commit import LedgerWriter
from ..ledger.ledger import Closed, Epoch, Fenced, Iterated, Ledger, Lost, Record
from ..ledger.ledger_state import Account, SegmentHistory
from ..orders import NodeOrder, environment, order_of
from ..tasks.dataset_scope import Scope
from ..tasks.summary import summarise
from .execute_segment import Desk, assume, prepare, run_group, run_segment, writing
from .failed_segment import BlocksLost, SegmentFailed, Stopped
from .segment import SegmentRun
from .session import run_session
from .wide_segment import Unclosed


async def run_loop(run: RunContext, loop: LoopNode, order: NodeOrder, desk: Desk) -> Summary:
    """Finish the loop, or find it finished. Raises the errors of `run_segment`."""
    name = run.scope.segment(loop.id)
    known = await asyncio.to_thread(run.files.find, LoopResult, f"segments/{name}/result")
    if known is not None and not order.repair:
        run.know_loop(name, known)
        return known.summary
    await asyncio.to_thread(run.catch_up, loop.data)
    ledger = await asyncio.to_thread(Ledger, run.site.store, run.files.segment(name), run.files.key, order.resumption)
    async with writing(ledger) as (writer, watch):
        runner = _LoopRunner(run, writer, watch, order, desk)
        result = await runner.finish(loop, order.repair)
        await writer.synced()
    for segment in result.made_in(name):
        await asyncio.to_thread(_publish, run, segment)
    if known is None:
        await asyncio.to_thread(run.files.create, f"segments/{name}/result", result)
    run.know_loop(name, result)
    return result.summary


def _publish(run: RunContext, segment: str) -> None:
    """Publish a manifest of the loop for readers outside it. After a repair, publish the newer one."""
    manifest = run.manifest(segment)
    newest = run.files.manifest(segment)
    if newest is None or newest != manifest:
        run.files.create_manifest(manifest, run.files.generation(segment) + 1)


async def drive(scheduler: Scheduler, execute: Callable[[RunNode], Coroutine[Any, Any, Event]]) -> None:
    """Carry out a scheduler's instructions until its graph is over.

    Raises SegmentFailed or BlocksLost, and Stopped once everything is drained.
    """
    running: dict[asyncio.Task[Event], RunNode] = {}
    todo: list[Instruction] = scheduler.start()
    try:
        while True:
            for instruction in todo:
                match instruction:
                    case RunNode():
                        running[spawn(execute(instruction))] = instruction
                    case Stop(node):
                        for task in [task for task, what in running.items() if what.node == node]:
                            task.cancel()
                    case Complete():
                        return
                    case Fail(problem):
                        raise SegmentFailed(problem)
                    case Escalate(blocks):
                        raise BlocksLost(set(blocks))
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            todo = [i for task in ended for i in scheduler.handle(_event(task, running.pop(task)))]
    except Stopped:
        if running:
            await asyncio.wait(running)
        raise
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _event(task: asyncio.Task[Event], what: RunNode) -> Event:
    return NodeStopped(what.node, what.group) if task.cancelled() else task.result()


class _LoopRunner:
    def __init__(
        self,
        run: RunContext,
        writer: LedgerWriter,
        watch: Callable[[SegmentRun], None],
        order: NodeOrder,
        desk: Desk,
    ) -> None:
        self._run, self._writer, self._watch, self._order, self._desk = run, writer, watch, order, desk
        self._histories: dict[str, SegmentHistory] = {}
        self._resumption = 0
        self._tidier = Tidier(run.site.host, run.folder)
        self._iterated: dict[tuple[str, int], Iterated] = {}
        self._pace: dict[str, float] = {}
        self._repairs = Counter[str]()
        """Number of times that a segment's blocks were lost."""
        self._read(writer.ledger.records)

    def _read(self, records: list[Record]) -> None:
        """Index the chain by segment; an epoch concerns every segment seen so far."""
        for record in records:
            if isinstance(record, Iterated):
                self._iterated[record.loop, record.iteration] = record
            elif isinstance(record, Epoch):
                self._resumption = max(self._resumption, record.resumption)
                for name, history in self._histories.items():
                    history.apply(record, name)
            else:
                self._history(record.segment).apply(record, record.segment)
                if isinstance(record, Lost):
                    self._reopen(record.segment)
        for name, history in self._histories.items():
            if history.closed and history.expected is not None:
                self._run.know(Manifest(name, history.expected, _outcomes(history), Summary()))

    def _history(self, name: str) -> SegmentHistory:
        return self._histories.setdefault(name, SegmentHistory(resumption=self._resumption))

    # -- loops

    async def finish(self, loop: LoopNode, repair: tuple[str, ...]) -> LoopResult:
        self._take_back(repair)
        return await self._loop(loop, self._run.scope, self._order.bindings)

    async def _loop(self, loop: LoopNode, scope: Scope, bindings: Mapping[str, Any]) -> LoopResult:
        """Run every iteration. After the loss of a block, run again from the iteration that made it."""
        name = scope.segment(loop.id)
        env = {**environment(self._run.env, bindings), "state": dict(scope.scalars)}
        while True:
            try:
                return await self._iterations(loop, name, scope, env)
            except BlocksLost as lost:
                if not all(block.startswith(f"{name}-") for block in lost.blocks):
                    raise
                self._take_back(lost.blocks)

    async def _iterations(self, loop: LoopNode, name: str, scope: Scope, env: Mapping[str, Any]) -> LoopResult:
        data = {key: scope.data(ref, self._run.loop) for key, ref in loop.state.items() if ref is not None}
        scalars = {key: self._render(loop, value, env) for key, value in loop.scalars.items()}
        for iteration in range(1, loop.max_iterations + 1):
            record = self._iterated.get((name, iteration))
            if record is None:
                path = {**scope.iterations, loop.id: iteration}
                states, values = {**scope.states, **data}, {**scope.scalars, **scalars}
                inner = replace(scope, iterations=path, states=states, scalars=values)
                record = await self._iteration(loop, name, inner, env)
                self._iterated[name, iteration] = record
                self._writer.append(record)
                self._tidier.after(name, iteration, record, self._writer.mark)
                await self._tidier.tidy(self._writer)
            data, scalars = dict(record.data), dict(record.scalars)
            if record.finished:
                return _result(loop, iteration, scalars, data)
        if loop.until and loop.on_exhausted == "fail":
            text = f"{loop.id}: `until: {loop.until}` was not true after maxIterations: {loop.max_iterations}"
            raise SegmentFailed(Problem(FailureClass.USER_ERROR, text, loop.id))
        return _result(loop, loop.max_iterations, scalars, data)

    async def _iteration(self, loop: LoopNode, name: str, scope: Scope, outer: Mapping[str, Any]) -> Iterated:
        iteration = scope.iterations[loop.id]
        self._desk.iteration = f"{name} {iteration}/{loop.max_iterations}"
        env = {**outer, "state": dict(scope.scalars)}
        scheduler = Scheduler(loop.body, env, prefix=f"{name}-{iteration}/")

        async def execute(instruction: RunNode) -> Event:
            return await self._execute(loop.body.node(instruction.node), instruction, scope)

        await drive(scheduler, execute)
        data = {key: scope.states[key] for key, ref in loop.state.items() if ref is not None}
        scalars = {key: scope.scalars[key] for key in loop.scalars}
        for key, ref in loop.next.items():
            if ref is None:
                scalars[key] = self._render(loop, loop.next_scalars[key], scheduler.env)
            else:
                self._check_not_skipped(loop, key, scheduler)
                data[key] = scope.data(ref, self._run.loop)
        env = {**scheduler.env, "state": {**scope.scalars, **scalars}}
        finished = self._until(loop, env) if loop.until else False
        return Iterated(name, iteration, scalars, data, finished)

    def _check_not_skipped(self, loop: LoopNode, state: str, scheduler: Scheduler) -> None:
        skipped = {*loop.carried[state]}.intersection(scheduler.skipped)
        if skipped:
            text = f"`next` takes {state} from {min(skipped)}, which was skipped in this iteration"
            raise _user_error(loop, text)

    def _until(self, loop: LoopNode, env: Mapping[str, Any]) -> bool:
        try:
            verdict = evaluate(parse(loop.until), env)
        except ExpressionError as error:
            raise _user_error(loop, f"`until: {loop.until}`: {error}") from error
        if not isinstance(verdict, bool):
            raise _user_error(loop, f"`until: {loop.until}` gives {verdict!r}, not true or false")
        return verdict

    def _render(self, loop: LoopNode, value: Any, env: Mapping[str, Any]) -> Any:
        try:
            rendered = render(value, env)
        except ExpressionError as error:
            raise _user_error(loop, f"state {value!r}: {error}") from error
        if not is_storable(rendered):
            raise _user_error(loop, f"state {value!r} has more than 64 bits")
        return rendered

    # -- nodes of a body

    async def _execute(self, node: Node, instruction: RunNode, scope: Scope) -> Event:
        try:
            if isinstance(node, LoopNode):
                self._take_back(instruction.repair)
                result = await self._loop(node, scope, instruction.bindings)
                self._run.know_loop(scope.segment(node.id), result)
                return NodeDone(node.id, result.summary)
            assert isinstance(node, Segment), "nothing else runs inside a loop"
            return NodeDone(node.id, await self._segment(node, instruction, scope))
        except SegmentFailed as failed:
            return NodeFailed(node.id, failed.problem)
        except BlocksLost as lost:
            return NodeLost(node.id, lost.blocks)

    async def _segment(self, segment: Segment, instruction: RunNode, scope: Scope) -> Summary:
        self._take_back(instruction.repair)
        name = scope.segment(segment.id)
        history = self._history(name)
        assume(history, self._order.assume, segment, self._run.plan.graph)
        if history.closed and history.expected is not None:
            outcomes = _outcomes(history)
            summary = summarise(segment, outcomes, history.expected)
            self._run.know(Manifest(name, history.expected, outcomes, summary))
            return summary
        order = order_of(self._run.id, instruction)
        account = Account(name, self._writer, history, pace=self._pace.get(segment.id, 0.0))
        segment_run = await prepare(self._run, segment, scope, order, account)
        self._watch(segment_run)
        with self._desk.showing(segment_run):
            manifest = await segment_run.run()
        self._writer.append(Closed(name))
        self._remember(manifest)
        self._pace[segment.id] = sum(outcome.seconds for outcome in manifest.outcomes) / max(1, len(manifest.outcomes))
        return manifest.summary

    def _remember(self, manifest: Manifest) -> None:
        history = SegmentHistory(expected=manifest.expected, closed=True, resumption=self._resumption)
        history.committed = {outcome.partition: outcome for outcome in manifest.outcomes}
        self._histories[manifest.segment] = history
        self._run.know(manifest)

    def _take_back(self, blocks: tuple[str, ...]) -> None:
        """Take back the commits whose blocks are gone, and forget the iterations from there on, so that they run again.

        Raises SegmentFailed when the blocks of a segment were lost MAXIMUM_REPAIRS times.
        """
        for name, history in self._histories.items() if blocks else ():
            if not Account(name, self._writer, history).take_back(blocks):
                continue
            self._run.forget(name)
            self._reopen(name)
            self._repairs[name] += 1
            if self._repairs[name] > MAXIMUM_REPAIRS:
                text = f"blocks of {name} were lost {MAXIMUM_REPAIRS} times; the place that keeps them loses data"
                raise SegmentFailed(Problem(FailureClass.UNREACHABLE, text, name))

    def _reopen(self, segment: str) -> None:
        """Forget the iterations from this segment's on. For `a-3/b-2/x`: iterations of `a` from 3 and of `a-3/b` from
        2."""
        path = segment.split("/")
        for depth in range(len(path) - 1):
            loop, _, iteration = "/".join(path[: depth + 1]).rpartition("-")
            for key in [key for key in self._iterated if key[0] == loop and key[1] >= int(iteration)]:
                del self._iterated[key]


def _outcomes(history: SegmentHistory) -> tuple[Outcome, ...]:
    return tuple(history.committed[partition] for partition in sorted(history.committed))


def _result(loop: LoopNode, iterations: int, scalars: dict[str, Any], data: dict[str, Data]) -> LoopResult:
    summary = Summary(metrics={loop.id: {"iterations": iterations}}, state=scalars, data=data)
    return LoopResult(scalars, data, summary)


def _user_error(loop: LoopNode, text: str) -> SegmentFailed:
    return SegmentFailed(Problem(FailureClass.USER_ERROR, f"{loop.id}: {text}", loop.id))


async def run_node(run: RunContext, order: NodeOrder, desk: Desk) -> Summary | Unclosed | None:
    """Finish the node, or a task group of it, or find it finished. None: the group is closed.

    Raises SegmentFailed, BlocksLost, Stopped; Fenced, StoreError, InternalError.
    """
    node = run.plan.graph.node(order.node)
    assert isinstance(node, Segment | LoopNode), "no other node has work"
    try:
        if isinstance(node, LoopNode):
            return await run_loop(run, node, order, desk)
        if isinstance(node.feed, CallsFeed):
            return await run_session(run, node, order, desk)
        if order.group < 0:
            return await run_segment(run, node, order, desk)
        await run_group(run, node, order, desk)
        return None
    except (Fenced, StoreError, InternalError):
        raise
    except TreadleError as error:
        raise SegmentFailed.by(error, node.id) from error
