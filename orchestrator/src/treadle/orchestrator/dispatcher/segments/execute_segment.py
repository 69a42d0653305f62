"""The work of one segment activity, from ledger to manifest. Loops use the same steps on a shared ledger."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import msgspec
from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives.errors import FailureClass, UsageError

from ...plan.plan import CallsFeed, Graph, Segment, merged_objects
from ...run_store.run_files import Manifest
from ...scheduler.instructions import Problem, Summary
from ...telemetry.hops import hop, passed
from ..driver_context.run_context import RunContext
from ..driver_context.slot_pool import SlotPool
from ..ledger.group_commit import LedgerWriter
from ..ledger.ledger import Ledger
from ..ledger.ledger_state import Account, SegmentHistory, lost_partitions, replay
from ..lending.borrowed_slots import BorrowedSlots, borrows
from ..orders import NodeOrder, Progress, skipped_stages
from ..tasks import outputs
from ..tasks.dataset_scope import Scope, nodes_read
from .failed_segment import SegmentFailed
from .gang_segment import GangRun
from .open_segment import OpenRun
from .segment import SegmentRun
from .wide_segment import Unclosed, is_wide, put_together

T = TypeVar("T")


class Shown(Protocol):
    """Work that shows its progress and can be drained."""

    def progress(self) -> Progress: ...

    def drain(self) -> None:
        """Start no more attempts. Running attempts may end."""


class Desk:
    """The state that a running activity shows, and the drain order that it receives."""

    def __init__(self) -> None:
        self._runs: list[Shown] = []
        self._draining = False
        self.stopping = False
        """True: no further node begins."""
        self.node = self.iteration = ""

    def heartbeat(self) -> tuple[str, Any, str]:
        """The node, the progress of its segments, and the iteration of its loop."""
        return self.node, msgspec.to_builtins(self.progress()), self.iteration

    def progress(self) -> list[Progress]:
        return [run.progress() for run in self._runs]

    def drain(self) -> None:
        """Start no more attempts, in segments shown now or later. Running attempts may end."""
        self._draining = True
        for run in self._runs:
            run.drain()

    @contextlib.contextmanager
    def showing(self, run: Shown) -> Iterator[None]:
        self._runs.append(run)
        if self._draining:
            run.drain()
        try:
            yield
        finally:
            self._runs.remove(run)


async def run_segment(run: RunContext, segment: Segment, order: NodeOrder, desk: Desk) -> Summary | Unclosed:
    """Close the segment, or find it closed. A wide segment is assembled from its groups, or its open groups are
    returned.

    Raises SegmentFailed, BlocksLost, Fenced, StoreError.
    """
    name = run.scope.segment(segment.id)
    is_new = run.begins(name) and order.resumption == 1 and not order.repair
    generation = 0 if is_new else await asyncio.to_thread(run.files.generation, name)
    closed = await asyncio.to_thread(run.files.manifest, name) if generation else None
    if closed and not lost_partitions(closed.outcomes, order.repair):
        run.know(closed)
        return closed.summary
    await asyncio.to_thread(run.catch_up, nodes_read(segment, skipped_stages(order.bindings)))
    if await asyncio.to_thread(is_wide, run, segment):
        return await put_together(run, segment, order.repair, generation + 1)
    close = partial(_close, run, segment, generation=generation + 1)
    return await _run(run, segment, order, desk, close, is_new=is_new)


async def run_group(run: RunContext, segment: Segment, order: NodeOrder, desk: Desk) -> None:
    """Close a task group of a wide segment, or find it closed. Raises the errors of `run_segment`.

    The group's ledger and manifest hold only its own partitions. Its inputs and outputs are the same as in the whole
    segment.
    """
    name, group = run.scope.segment(segment.id), order.group
    generation = (await asyncio.to_thread(run.files.closed_groups, name)).get(group, 0)
    closed = await asyncio.to_thread(run.files.group, name, group, generation) if generation else None
    if closed and not lost_partitions(closed.outcomes, order.repair):
        return
    await asyncio.to_thread(run.catch_up, nodes_read(segment, skipped_stages(order.bindings)))

    async def close(manifest: Manifest) -> None:
        await asyncio.to_thread(run.files.close_group, manifest, group, generation + 1)

    await _run(run, _alone(segment), order, desk, close)


def _alone(segment: Segment) -> Segment:
    """The segment as one task group checks it, without percentages: those are of all groups, and checked at
    assembly."""
    tolerated = {stage: replace(one, percent=-1.0) for stage, one in segment.tolerated.items()}
    return replace(segment, tolerated=tolerated)


async def _run(
    run: RunContext,
    segment: Segment,
    order: NodeOrder,
    desk: Desk,
    close: Callable[[Manifest], Awaitable[T]],
    *,
    is_new: bool = False,
) -> T:
    """Run the partitions that the ledger lacks or has lost, then call `close` while progress is still shown."""
    began = time.time_ns()
    name, group = run.scope.segment(segment.id), order.group
    prefix = run.files.segment(name) if group < 0 else run.files.group_ledger(name, group)
    ledger = await asyncio.to_thread(Ledger, run.site.store, prefix, run.files.key, order.resumption, is_new=is_new)
    history = replay(ledger.records, name)
    if not history.frozen:  # a repair has a deadline of its own
        history.opened = order.since or history.opened  # it counts from the first group on
    async with writing(ledger) as (writer, watch):
        account = Account(name, writer, history, group)
        account.take_back(order.repair)
        assume(history, order.assume, segment, run.plan.graph)
        await asyncio.to_thread(outputs.claim, segment, run.id)
        segment_run = await prepare(run, segment, run.scope, order, account)
        watch(segment_run)
        passed(run.id, f"open {name}", began)
        with desk.showing(segment_run):
            manifest = await segment_run.run()
            with hop(run.id, f"close {name}"):
                return await close(manifest)


async def prepare(run: RunContext, segment: Segment, scope: Scope, order: NodeOrder, account: Account) -> SegmentRun:
    """The run of a segment (see `SegmentRun`).

    Raises SegmentFailed when the segment's program cannot be made (for example a template over null), or when its
    executor does not start.
    """
    try:
        pool = await run.site.pools.ready(segment.policy.executor)
        if borrows(run.site, pool, segment.policy.gang):
            pool = SlotPool(BorrowedSlots(run.site, segment.policy.executor, segment.policy.gang, run.files.key))
        kind = OpenRun if isinstance(segment.feed, CallsFeed) else GangRun if segment.policy.gang else SegmentRun
        return kind(run, segment, scope, order, account, pool)
    except UsageError as error:
        raise SegmentFailed.by(error, segment.id) from error


@contextlib.asynccontextmanager
async def writing(ledger: Ledger) -> AsyncIterator[tuple[LedgerWriter, Callable[[SegmentRun], None]]]:
    """A writer whose failure stops every watched segment run. Watched runs are referenced weakly."""
    watched = WeakSet[SegmentRun]()

    def failed(error: BaseException) -> None:
        for segment_run in list(watched):
            segment_run.stop_with(error)

    writer = LedgerWriter(ledger, failed)
    try:
        yield writer, watched.add
    finally:
        await writer.close()


def assume(history: SegmentHistory, what: str, segment: Segment, graph: Graph) -> None:
    """Apply the user's decision about attempts with an unknown outcome.

    Raises SegmentFailed for `done` if the segment has readers or an output, since the records of those attempts are
    lost.
    """
    missed = segment.output is not None or any(segment.id in node.data for node in graph.walk())
    missed = missed or any(merged_objects(op) for op in segment.ops)
    if what == "done" and history.cut_off and missed:
        who = f"{segment.stages[-1]}: {len(history.cut_off)} attempts took effect, but what they returned is lost"
        text = f"{who}, and the workflow goes on with it; use --assume retry, or start a new run"
        raise SegmentFailed(Problem(FailureClass.UNKNOWN_OUTCOME, text, segment.id))
    for partition in list(history.cut_off) if what else ():
        history.cut_off.discard(partition)
        if what == "done":
            attempt = history.starts.get(partition, 1)
            history.committed[partition] = Outcome(partition, attempt, "objects", 0)


async def _close(run: RunContext, segment: Segment, manifest: Manifest, generation: int) -> Summary:
    await asyncio.to_thread(outputs.publish, segment, manifest, run.job, run.blocks)
    counts = await asyncio.to_thread(run.files.create_manifest, manifest, generation)
    run.know(counts)
    return counts.summary
