"""Executes a whole run inside one event loop: the real scheduler, dispatcher, ledger and executors, without
Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from treadle.dsl.model import Spec
from treadle.dsl.templates import render
from treadle.executors.interface import Executor
from treadle.orchestrator.dispatcher.blocks.host_blocks import Hosts
from treadle.orchestrator.dispatcher.driver_context.run_context import DriverContext, RunContext
from treadle.orchestrator.dispatcher.driver_context.slot_pool import Pools
from treadle.orchestrator.dispatcher.orders import Assumption, NodeOrder, order_of
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk
from treadle.orchestrator.dispatcher.segments.failed_segment import BlocksLost, SegmentFailed
from treadle.orchestrator.dispatcher.segments.loop import drive, run_node
from treadle.orchestrator.dispatcher.segments.wide_segment import Unclosed
from treadle.orchestrator.dispatcher.tasks.dataset_scope import partition_inputs
from treadle.orchestrator.plan.plan import Child, LoopNode, Segment
from treadle.orchestrator.planner import make_plan
from treadle.orchestrator.reuse.cache_lookup import keep, take_over
from treadle.orchestrator.run_store.child_runs import child_submission, keep_child
from treadle.orchestrator.scheduler.instructions import (
    Event,
    GroupDone,
    NodeDone,
    NodeFailed,
    NodeGrouped,
    NodeLost,
    Problem,
    Summary,
)
from treadle.orchestrator.scheduler.instructions import RunNode as RunNode
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.orchestrator.temporal.activities import plan_site
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import FailureClass, UsageError
from treadle.primitives.stores.store import Store

from ..submission import new_run_id, prepare

GROUPS_AT_ONCE = 4


class EngineFailure(Exception):
    """The run failed, with a class."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.failure}: {problem.message}")
        self.problem = problem


@dataclass
class EngineResult:
    """The result of a run, with decoded datasets."""

    run: str
    datasets: dict[str, list[tuple[Kind, Any]]]
    """stage -> (kind, value) of each partition. Skipped stages, and stages that only write files, are absent."""
    metrics: dict[str, Any]
    outputs: dict[str, Any]
    skipped: set[str] = field(default_factory=set)


class Engine:
    """Runs specs on executors and one store."""

    def __init__(
        self,
        store: Store,
        executors: Executor | Mapping[str, Executor],
        key: bytes,
        host_root: Path | None,
        hosts: Sequence[Hosts] = (),
    ) -> None:
        """`executors`: by the name that stages use; a single executor is called `local`.

        `hosts`: the hosts whose blocks are pulled over TCP; the first is the host of `host_root`.
        """
        here = hosts[0] if hosts else None
        pools = Pools(executors if isinstance(executors, Mapping) else {"local": executors})
        self.site = DriverContext(store, key, host_root, pools, one_host=not hosts, hosts=here)
        self._others = hosts[1:]
        self._planned: set[str] = set()

    def submit(
        self,
        spec: Spec,
        inputs: Mapping[str, Any],
        *,
        base: Path,
        roots: list[Path],
        captured: Mapping[str, bytes] | None = None,
        run: str = "",
        memo: Mapping[str, Any] | None = None,
    ) -> str:
        """Write the submission of a run and its plan; return its id."""
        run_id = run or new_run_id(spec.name)
        prepared = prepare(
            spec, inputs, run=run_id, base=base, roots=roots, captured=captured or {}, site=plan_site(self.site)
        )
        files = self.site.files(run_id)
        if prepared.bundle:
            files.create_bytes("bundle", prepared.bundle)
        files.create("spec", replace(prepared.submission, memo=dict(memo or {})))
        files.create("plan", prepared.plan)
        self._planned.add(run_id)
        return run_id

    async def run(
        self,
        run_id: str,
        resumption: int = 1,
        desk: Desk | None = None,
        assume: Assumption = "",
    ) -> EngineResult:
        """Execute a submitted run, or resume it. Raises EngineFailure; Stopped once `desk` was drained."""
        run = self.site.open(run_id)
        for host in self._others:
            host.announce(run_id)
        is_new = run_id in self._planned
        self._planned.discard(run_id)
        scheduler = Scheduler(run.plan.graph, run.env, await asyncio.to_thread(take_over, run, is_new=is_new))

        async def execute(instruction: RunNode) -> Event:
            return await self._execute(run, order_of(run_id, instruction, resumption, assume), desk or Desk())

        try:
            await drive(scheduler, execute)
            return await asyncio.to_thread(self._result, run, scheduler)
        except SegmentFailed as failed:
            raise EngineFailure(failed.problem) from failed
        finally:
            run.blocks.close()

    async def _execute(self, run: RunContext, order: NodeOrder, desk: Desk) -> Event:
        node, group = run.plan.graph.node(order.node), order.group
        if isinstance(node, Child):
            return await self._child(run, node, order)
        try:
            result = await run_node(run, order, desk)
            if result is None:
                return GroupDone(node.id, group)
            if isinstance(result, Unclosed):
                return NodeGrouped(node.id, result.groups, GROUPS_AT_ONCE, result.size)
            if isinstance(node, Segment | LoopNode):
                await asyncio.to_thread(keep, run, node)
            return NodeDone(node.id, result)
        except SegmentFailed as failed:
            return NodeFailed(node.id, failed.problem, group)
        except BlocksLost as lost:
            return NodeLost(node.id, lost.blocks, group)

    async def _child(self, parent: RunContext, node: Child, order: NodeOrder) -> Event:
        """Execute the child as a run of its own, planned now."""
        started = parent.plan.started
        try:
            wanted = child_submission(parent.submission, started, parent.files.child(node.id), order.bindings)
            files = self.site.files(wanted.run)
            kept = keep_child(parent.files, files, wanted)
            about = {"id": kept.run, "startTime": started}
            spec, base = Spec.model_validate(kept.spec), Path(kept.base)
            files.create("plan", make_plan(spec, kept.inputs, about, kept.functions, base, plan_site(self.site)))
        except UsageError as error:
            return NodeFailed(node.id, Problem(str(FailureClass.USER_ERROR), str(error), node.id))
        try:
            made = await self.run(kept.run, order.resumption, assume=order.assume)
        except EngineFailure as failed:
            return NodeFailed(node.id, failed.problem)
        return NodeDone(node.id, Summary(outputs=made.outputs))

    def _result(self, run: RunContext, scheduler: Scheduler) -> EngineResult:
        known = scheduler.env["stages"]
        skipped = {stage for node in scheduler.skipped for stage in run.plan.graph.node(node).stages}
        return EngineResult(
            run=run.id,
            datasets=self._datasets(run, skipped),
            metrics={stage: dict(about["metrics"]) for stage, about in known.items() if about and about["metrics"]},
            outputs=render(run.plan.outputs, scheduler.env),
            skipped=skipped,
        )

    def _datasets(self, run: RunContext, skipped: set[str]) -> dict[str, list[tuple[Kind, Any]]]:
        found: dict[str, list[tuple[Kind, Any]]] = {}
        for stage, ref in run.plan.datasets.items():
            data = run.scope.data(ref, run.loop) if stage not in skipped else None
            if data is None or data.form == "scattered":
                continue
            inputs = partition_inputs(data, run.manifest)
            slices = [row[0] if row else None for one in inputs for row in one.inputs]
            if any(slices):
                found[stage] = [(one.kind, run.blocks.get(one)) if one else ("objects", []) for one in slices]
        return found
