"""The progress of a run by stage: from its plan, manifests and ledgers, and from the heartbeats of a living driver.

Without a driver the picture is the same, except for running attempts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from treadle.executors.program import Discard
from treadle.orchestrator.dispatcher.ledger.ledger import Iterated, LedgerReader, read
from treadle.orchestrator.dispatcher.ledger.ledger_state import ChainHistory, replay
from treadle.orchestrator.dispatcher.orders import Progress
from treadle.orchestrator.dispatcher.tasks.summary import size_of
from treadle.orchestrator.plan.plan import CALLS, BarrierNode, CallsFeed, Child, LoopNode, Node, NodeKind, Plan, Segment
from treadle.orchestrator.run_requests.run_views import NodeView, RunEnd, RunView, State
from treadle.orchestrator.run_store.call_log import CallIndex, CallLog
from treadle.orchestrator.run_store.run_files import Closing, LoopResult, RunFiles, RunResult
from treadle.primitives.errors import MissingError

from .wide_segments import SegmentTaskGroups, sum_of

NodeState = Literal["waiting", "running", "stopped", "failed", "done", "skipped"]


class StageView(Struct, frozen=True, rename="camel"):
    """One node of the plan: the stages that run together, and their progress."""

    node: str
    stages: tuple[str, ...]
    kind: NodeKind
    state: NodeState
    partitions: int = 0
    """0: not known yet."""
    committed: int = 0
    failed: int = 0
    """Partitions that failed permanently in this resumption."""
    retried: int = 0
    running: int = 0
    rows: int = 0
    bytes: int = 0
    failed_items: int = 0
    iteration: str = ""
    """For a loop: `lloyd 3/50`."""
    inner: tuple[Progress, ...] = ()
    """Running segments of a loop."""
    attempt: int = 1
    """Attempt of the activity; above 1: a driver was lost."""
    place: str = ""
    """Planned destination of blocks larger than a few KiB: `host` or `store`; empty: it has no blocks."""
    estimate: int = 0
    """Predicted bytes of these blocks."""
    read: dict[str, int] = {}
    """Bytes of blocks read, by source (see `Outcome.read`)."""
    spilled: int = 0
    """Bytes it wrote to temporary files because they did not fit into memory."""
    run: str = ""
    """The child run that the node represents; its figures are sums over that run."""
    origin: str = ""
    """The run that produced it, if it was reused."""


class FunctionProgress:
    """The progress of a session by function: from its call log and its ledger, each read once."""

    def __init__(self, files: RunFiles) -> None:
        self._log, self._index = CallLog(files), CallIndex()
        self._ledger, self._histories = LedgerReader(files.store, files.segment(CALLS), files.key), ChainHistory()

    def rows(self, view: RunView) -> list[StageView]:
        """A row for each function. Blocking."""
        for record in self._log.read():
            self._index.add(record)
        self._histories.add(self._ledger.read())
        return [self._row(name, view) for name in self._index.functions]

    def _row(self, name: str, view: RunView) -> StageView:
        history, size = self._histories[name], self._index.size(name)
        ended = len(history.committed) + len(history.failed)
        state: NodeState = "done" if ended == size else "running" if view.open else "stopped"
        return StageView(
            name,
            (name,),
            "segment",
            state,
            partitions=size,
            committed=len(history.committed),
            failed=len(history.failed),
            retried=sum(attempt - 1 for attempt in history.starts.values() if attempt > 1),
            running=history.running if view.open else 0,
            bytes=sum(map(size_of, history.committed.values())),
        )


class Painter:
    """Computes progress with few store requests: closed nodes are not read again."""

    def __init__(self, files: RunFiles, others: Callable[[str], RunFiles]) -> None:
        """`others`: the files of the runs that this one started."""
        self._files, self._others = files, others
        self._children: dict[str, Painter] = {}
        self._plan: Plan | None = None
        self._closed: dict[str, StageView] = {}
        self._groups = SegmentTaskGroups(files)

    @cached_property
    def _functions(self) -> FunctionProgress:
        return FunctionProgress(self._files)

    @property
    def plan(self) -> Plan | None:
        """None until a driver has opened the run."""
        if self._plan is None:
            self._plan = self._files.find(Plan, "plan")
        return self._plan

    def forget(self) -> None:
        """Drop cached closed nodes, which a repair may have reopened."""
        self._closed.clear()

    def stages(self, view: RunView, end: RunEnd | None = None) -> list[StageView]:
        """Every top-level node in the order of the plan. Blocking."""
        if self.plan is None:
            return []
        beats: dict[str, list[NodeView]] = defaultdict(list)
        for beat in view.nodes if view.open else ():  # Temporal keeps listing the activities of a terminated run
            beats[beat.node].append(beat)
        skipped = set(end.skipped) if end else set()
        failed = end.failure.node if end and end.failure else ""
        found: dict[str, StageView] = {}
        for node in self.plan.graph.nodes:
            if isinstance(node, Segment) and isinstance(node.feed, CallsFeed):
                return self._functions.rows(view)
            found[node.id] = self._stage(node, beats[node.id], found, skipped, failed, view)
        return list(found.values())

    def _stage(
        self,
        node: Node,
        beats: Sequence[NodeView],
        found: dict[str, StageView],
        skipped: set[str],
        failed: str,
        view: RunView,
    ) -> StageView:
        if beats:
            self._closed.pop(node.id, None)
            if isinstance(node, Segment) and node.group:
                beats = [sum_of(node, beats, self._groups)]
            return _from_beat(node, beats[0])
        if node.id in skipped:
            return _bare(node, "skipped")
        if isinstance(node, Child):
            return self._child(node, view, failed)
        if node.id not in self._closed:
            closed = _closed(self._files, node, found)
            if closed is None:
                return self._unfinished(node, found, failed, view.state)
            self._closed[node.id] = closed
        return self._closed[node.id]

    def _child(self, node: Child, view: RunView, failed: str) -> StageView:
        """One row with the totals of the child run. Its running attempts are shown only in its own view."""
        if node.id not in self._children:
            self._children[node.id] = Painter(self._others(self._files.child(node.id)), self._others)
        painter = self._children[node.id]
        files = painter._files
        inner = painter.stages(replace(view, nodes=()))
        segments = [one for one in inner if one.kind in ("segment", "workflow")]
        state: NodeState = "waiting"
        if files.find(RunResult, "result") is not None:
            state = "done"
        elif painter.plan is not None:
            state = "failed" if node.id == failed else "running" if view.open else "stopped"
        return replace(
            _bare(node, state),
            partitions=sum(one.partitions for one in segments),
            committed=sum(one.committed for one in segments),
            failed=sum(one.failed for one in segments),
            rows=sum(one.rows for one in segments),
            bytes=sum(one.bytes for one in segments),
            run=files.run,
        )

    def _unfinished(self, node: Node, found: dict[str, StageView], failed: str, state: State) -> StageView:
        ready = all(found[need].state in ("done", "skipped") for need in (*node.data, *node.after) if need in found)
        if not ready or isinstance(node, BarrierNode):
            return _bare(node, "waiting")
        known = replace(_from_ledger(self._files, node), retried=self._groups.retried(node.id))
        if node.id == failed:
            return replace(known, state="failed")
        if not (known.committed or known.failed or known.iteration) or state == "paused":
            return known
        # In an open run the node waits in the activity of an earlier node, whose next heartbeat will show it.
        return replace(known, state="running" if state == "running" else "stopped")


def _bare(node: Node, state: NodeState) -> StageView:
    """The view of a node with the values from the plan."""
    view = StageView(node.id, node.stages, node.kind, state)
    if not isinstance(node, Segment):
        return view
    leaves = not isinstance(node.tail, Discard)
    place, estimate = (node.put, node.estimate) if leaves else ("", 0)
    return replace(view, partitions=node.partitions, place=place, estimate=estimate)


def _from_beat(node: Node, beat: NodeView) -> StageView:
    known = replace(_bare(node, "running"), attempt=beat.attempt)
    if isinstance(node, LoopNode):
        return replace(known, iteration=beat.iteration, inner=beat.progress)
    if not beat.progress:
        return known
    one = beat.progress[0]
    return replace(
        known,
        partitions=one.partitions,
        committed=one.committed,
        failed=one.failed,
        retried=one.retried,
        running=one.running,
        bytes=one.size,
    )


def _closed(files: RunFiles, node: Node, found: dict[str, StageView]) -> StageView | None:
    """The view of a node that is done; None: it is not."""
    if isinstance(node, BarrierNode):
        return _passed(node, [found[need] for need in node.data if need in found])
    in_loop = isinstance(node, LoopNode)
    done = files.find(LoopResult, f"segments/{node.id}/result") if in_loop else files.closing(node.id)
    if done is None:
        return None
    summary = done.summary
    known = replace(
        _bare(node, "done"),
        partitions=summary.partitions,
        rows=summary.rows,
        bytes=summary.size,
        failed_items=summary.failed_items,
        read=summary.read,
        spilled=summary.spilled,
        origin=done.origin,
    )
    if isinstance(done, Closing):
        return replace(known, committed=done.committed)
    iterations = summary.metrics.get(node.id, {}).get("iterations", "")
    return replace(known, iteration=f"{node.id} {iterations}" if iterations else "")


def _passed(barrier: BarrierNode, needs: Sequence[StageView]) -> StageView | None:
    if any(need.state != "done" for need in needs):
        return None
    partitions = sum(need.partitions for need in needs)
    return replace(_bare(barrier, "done"), partitions=partitions, committed=partitions)


def _from_ledger(files: RunFiles, node: Node) -> StageView:
    """The partitions committed before the run stopped."""
    try:
        records = read(files.store, files.segment(node.id), files.key)
    except MissingError:
        records = []
    if isinstance(node, LoopNode):
        done = [record for record in records if isinstance(record, Iterated) and record.loop == node.id]
        text = f"{node.id} {max(record.iteration for record in done)}/{node.max_iterations}" if done else ""
        return replace(_bare(node, "waiting"), iteration=text)
    chains = [records, *(read(files.store, chain, files.key) for chain in _group_ledgers(files, node))]
    histories = [replay(chain, node.id) for chain in chains]
    outcomes = [outcome for history in histories for outcome in history.committed.values()]
    failed = [_finally_failed(chain, node.id, set(h.committed)) for chain, h in zip(chains, histories, strict=True)]
    expected = sum(history.expected or 0 for history in histories)
    known = _bare(node, "waiting")
    return replace(
        known,
        partitions=max(expected, known.partitions),
        committed=len(outcomes),
        failed=sum(map(len, failed)),
        rows=sum(outcome.rows for outcome in outcomes),
        bytes=sum(map(size_of, outcomes)),
    )


def _group_ledgers(files: RunFiles, node: Node) -> list[str]:
    return files.ledgers(node.id)[1:] if isinstance(node, Segment) and node.group else []


def _finally_failed(records: Iterable[object], segment: str, committed: set[int]) -> set[int]:
    from treadle.orchestrator.dispatcher.ledger.ledger import Epoch, Failed

    failed: set[int] = set()
    resumption = 0
    for record in records:
        if isinstance(record, Epoch) and record.resumption > resumption:
            resumption = record.resumption
            failed.clear()
        elif isinstance(record, Failed) and record.segment == segment and record.final:
            failed.add(record.partition)
    return failed - committed
