"""The one scheduler: decides which node runs next. Pure: events in, instructions out; no clock, no I/O.

It drives the Temporal workflow over the top graph of a plan, and the loop activity over a loop's body.

A node is `waiting` until its needs are over, then `running`, and ends `done` or `skipped`:

    waiting --needs over--> running --NodeDone--> done
    waiting --when false, or data skipped--> skipped
    running --NodeStopped (pause, new limits)--> waiting; a child run is held instead, and released later
    running --NodeLost (input blocks gone)--> waiting, and the producers done --> waiting with `repair`, which
                                              stays until they are done again
    running --NodeFailed--> failed; nothing new starts, running nodes are stopped, then the graph has failed

A wide node reports which of its task groups are not closed (NodeGrouped). It is `running` while they run, each by its
own RunNode. Then it runs once more itself: it assembles their results, or names groups that are still open. An event
that ends a group also ends the node, once its other groups have ended. After a failure they are stopped; after a loss
they end by themselves.

A RunNode may name further nodes (`then`). They are `running` from the start. Nodes that were not begun end by
NodeStopped.

Illegal events raise InternalError and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from treadle.dsl import expressions
from treadle.primitives.errors import InternalError

from ..plan.plan import OBJECTS, BarrierNode, Child, Graph, LoopNode, Node, Segment
from .instructions import (
    Complete,
    Escalate,
    Event,
    Fail,
    GroupDone,
    Hold,
    Instruction,
    Limit,
    NodeDone,
    NodeFailed,
    NodeGrouped,
    NodeLost,
    NodeStopped,
    Pause,
    Problem,
    Release,
    Rest,
    RunNode,
    Stop,
    Summary,
    Unpause,
)
from .lookahead import Ahead
from .task_groups import OpenTaskGroups, segment_of

MAXIMUM_REPAIRS = 10
"""How often a node runs again after a loss of its blocks, before the run fails."""


def _stage_paths(node: Node) -> list[list[str]]:
    """The stage values that the node's expressions read: `metrics.n` of `a` as [a, metrics, n], a broadcast `a` as
    [a]."""
    return [path.split(".")[1:] for path in node.paths if path.startswith("stages.")]


class Scheduler:
    """The state of one graph. `prefix`: the path of its concrete segment ids: empty, or `lloyd-3/`."""

    def __init__(
        self,
        graph: Graph,
        env: Mapping[str, Any],
        done: Mapping[str, Summary] | None = None,
        prefix: str = "",
        groups: Mapping[str, NodeGrouped] | None = None,
        ahead: int = 0,
    ) -> None:
        """`done` and `groups`: the known state of finished nodes, and of unfinished wide nodes.

        `ahead`: maximum of further nodes in one RunNode.
        """
        self._nodes: dict[str, Node] = {node.id: node for node in graph.nodes}
        self._status = dict.fromkeys(self._nodes, "waiting")
        self._graph = graph
        self._prefix = prefix
        self._env: dict[str, Any] = {**env, "stages": dict(env.get("stages", {}))}
        self._summaries: dict[str, Summary] = {}
        self._repair: dict[str, set[str]] = {}
        self._repairs: dict[str, int] = {}
        self._repairing: dict[str, tuple[str, ...]] = {}
        """Running node -> the blocks that it recomputes."""
        self._limits: dict[str, int] = {}
        self._problem: Problem | None = None
        self._escalated: set[str] = set()
        self._groups: dict[str, OpenTaskGroups] = {}
        self._grouped = dict(groups or {})
        self._most = ahead
        self._paused = self._resting = False
        self._over = False
        for node, summary in (done or {}).items():
            if node in self._nodes:
                self._finish(node, summary)

    @cached_property
    def _ahead(self) -> Ahead:
        """Made on first use, as the body of a loop never needs it: it restarts in each iteration, and no nodes follow
        there."""
        return Ahead(self._graph)

    # -- state for callers

    @property
    def env(self) -> dict[str, Any]:
        """`inputs`, `run`, `state`, and the finished ones of `stages`."""
        return self._env

    @property
    def running(self) -> tuple[str, ...]:
        return self._with_status("running")

    @property
    def in_groups(self) -> bool:
        """Returns whether task groups are under way."""
        return bool(self._groups)

    @property
    def skipped(self) -> tuple[str, ...]:
        return self._with_status("skipped")

    @property
    def summaries(self) -> Mapping[str, Summary]:
        return self._summaries

    def limit_of(self, node_id: str) -> int:
        """The user's limit of concurrent tasks. 0: the plan's limit holds."""
        limits = [self._limits[stage] for stage in self._nodes[node_id].stages if stage in self._limits]
        return min(limits, default=0)

    # -- events

    def start(self) -> list[Instruction]:
        return self._advance()

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, GroupDone | NodeFailed | NodeLost | NodeStopped) and event.group >= 0:
            return self._group_over(event)
        match event:
            case NodeDone(node, summary):
                self._expect_running(node)
                self._finish(node, summary)
                if self._repair.get(node):
                    self._status[node] = "waiting"
            case NodeGrouped(node):
                self._expect_running(node)
                return self._begin_groups(event, self._repairing.get(node, ()))
            case NodeStopped(node):
                self._expect_running(node)
                self._wait_again(node)
            case NodeFailed(node, problem):
                self._expect_running(node)
                return self._fail(node, problem)
            case NodeLost(node, blocks):
                self._expect_running(node)
                return self._lost(node, blocks)
            case Pause():
                self._paused = True
                return [Hold(node) if self._is_child(node) else Stop(node) for node in self.running]
            case Unpause():
                self._paused = False
                return [Release(node) for node in self.running if self._is_child(node)] + self._advance()
            case Rest():
                self._resting = True
            case Limit(stage, concurrency):
                self._limits[stage] = concurrency
                return [Stop(node) for node in self.running if stage in self._nodes[node].stages]
        return self._advance()

    # -- transitions

    def _finish(self, node_id: str, summary: Summary) -> None:
        node = self._nodes[node_id]
        self._status[node_id] = "done"
        self._summaries[node_id] = summary
        for stage in node.stages:
            known = self._stage_env(stage)
            if known is None:
                continue  # a node of the stage was skipped, and so the stage is too
            known["metrics"] = {**known["metrics"], **summary.metrics.get(stage, {})}
            if stage in summary.values:
                known["value"] = summary.values[stage]
                if stage.startswith(OBJECTS):
                    self._env.setdefault("objects", {})[stage.removeprefix(OBJECTS)] = known["value"]
            if isinstance(node, LoopNode):
                known["state"] = dict(summary.state)
            if isinstance(node, Child):
                known["outputs"] = dict(summary.outputs)

    def _skip(self, node_id: str) -> None:
        """Skip a node. A skipped stage is null, and so are all of its values."""
        self._status[node_id] = "skipped"
        for stage in self._nodes[node_id].stages:
            self._env["stages"][stage] = None

    def _stage_env(self, stage: str) -> dict[str, Any] | None:
        stages: dict[str, Any] = self._env["stages"]
        if stage not in stages:
            uri = self._graph.outputs.get(stage)
            stages[stage] = {"metrics": {}, "output": {"uri": uri} if uri else None, "state": {}}
        known: dict[str, Any] | None = stages[stage]
        return known

    def _fail(self, node_id: str, problem: Problem) -> list[Instruction]:
        self._status[node_id] = "failed"
        self._problem = self._problem or problem
        return self._stop_all() + self._advance()

    def _wait_again(self, node_id: str) -> None:
        """The node is not done, so the blocks that it should recompute may still be lost."""
        self._status[node_id] = "waiting"
        if repair := self._repairing.pop(node_id, ()):
            self._repair.setdefault(node_id, set()).update(repair)

    def _lost(self, node_id: str, blocks: Iterable[str]) -> list[Instruction]:
        self._wait_again(node_id)
        for block in blocks:
            producer = self._producer(block)
            if producer is None:
                self._escalated.add(block)
            else:
                self._repair.setdefault(producer, set()).add(block)
                if self._status[producer] == "done":
                    self._status[producer] = "waiting"
                    self._repairs[producer] = self._repairs.get(producer, 0) + 1
        tired = [node for node, count in self._repairs.items() if count > MAXIMUM_REPAIRS]
        if tired:
            text = f"blocks of {tired[0]} were lost {MAXIMUM_REPAIRS} times; the place that keeps them loses data"
            return self._fail(node_id, Problem("unreachable", text, node=tired[0]))
        if self._escalated:
            return self._stop_all() + self._advance()
        return self._advance()

    def _begin_groups(self, known: NodeGrouped, repair: tuple[str, ...] = ()) -> list[Instruction]:
        node = self._nodes[known.node]
        most = node.policy.max_concurrency if isinstance(node, Segment) else 0
        self._groups[node.id] = OpenTaskGroups(
            known.groups, known.seats, self.limit_of(node.id) or most, repair, known.size
        )
        return self._go_on(node)

    def _group_over(self, event: GroupDone | NodeFailed | NodeLost | NodeStopped) -> list[Instruction]:
        groups = self._groups.get(event.node)
        if groups is None or not groups.over(event.group, event.seats if isinstance(event, GroupDone) else 0):
            raise InternalError(f"event for group {event.group} of node {event.node!r}, which does not run")
        stops: list[Instruction] = []
        match event:
            case NodeStopped():
                groups.stopped = True
            case NodeLost(_, blocks):
                groups.lost.update(blocks)
            case NodeFailed(_, problem):
                self._problem = self._problem or problem
                stops = self._stop_all()
        return stops + self._go_on(self._nodes[event.node])

    def _go_on(self, node: Node) -> list[Instruction]:
        """Start groups up to the limit. Once none runs, the node itself comes next and assembles their results."""
        groups = self._groups[node.id]
        started = [] if self._held() else groups.start()
        if groups.running:
            bindings = self._bindings(node)
            return [RunNode(node.id, bindings, groups.repair_of(group), share, group) for group, share in started]
        del self._groups[node.id]
        return self._lost(node.id, groups.lost)

    def _held(self) -> bool:
        """Returns whether nothing may start now."""
        return self._paused or self._resting or self._problem is not None or bool(self._escalated)

    def _producer(self, block: str) -> str | None:
        segment = segment_of(block)
        if not segment.startswith(self._prefix):
            return None
        local = segment.removeprefix(self._prefix).partition("/")[0].partition("-")[0]  # names of nodes have no `-`
        return local if local in self._nodes else None

    def _is_child(self, node: str) -> bool:
        return isinstance(self._nodes[node], Child)

    def _stop_all(self) -> list[Instruction]:
        return [Stop(node) for node in self.running]

    # -- the next nodes

    def _advance(self) -> list[Instruction]:
        if self._problem is not None or self._escalated:
            return self._close()
        if self._held() or self._over:
            return []
        instructions: list[Instruction] = []
        for node in self._nodes.values():
            if self._status[node.id] == "waiting" and self._needs_over(node):
                try:
                    instructions += self._begin(node)
                except expressions.ExpressionError as error:
                    text = f"`when: {node.when}` of {node.id} cannot be judged: {error}"
                    return self._fail(node.id, Problem("user error", text, node=node.id))
        if all(status in ("done", "skipped") for status in self._status.values()):
            self._over = True
            return [Complete()]
        return instructions

    def _close(self) -> list[Instruction]:
        if self.running or self._over:
            return []
        self._over = True
        if self._problem is not None:
            return [Fail(self._problem)]
        return [Escalate(tuple(sorted(self._escalated)))]

    def _begin(self, node: Node) -> list[Instruction]:
        if any(self._status.get(need) == "skipped" for need in node.data) or not self._wanted(node):
            self._skip(node.id)
            return []
        if not isinstance(node, Segment | LoopNode | Child):
            self._finish(node.id, Summary())
            return []
        self._status[node.id] = "running"
        repair = self._repairing[node.id] = tuple(sorted(self._repair.pop(node.id, ())))
        grouped = self._grouped.pop(node.id, None)
        if grouped is not None and grouped.groups:
            return self._begin_groups(grouped)
        then = () if repair or isinstance(node, Child) else tuple(self._following(node))  # a child has no activity
        return [RunNode(node.id, self._bindings(node), repair, self.limit_of(node.id), then=then)]

    def _following(self, node: Node) -> Iterator[RunNode]:
        """The chain of nodes that can follow in the same RunNode: each waits only for the one before, and its bindings
        are known."""
        over, left, last = {node.id}, self._most, node
        while left and (then := self._ahead.next_of(last.id, self._status)) and self._may_follow(then, over):
            over.add(then.id)
            last = then
            if not isinstance(then, BarrierNode):  # a barrier passes by itself
                left -= 1
                self._status[then.id] = "running"
                yield RunNode(then.id, self._bindings(then), limit=self.limit_of(then.id))

    def _may_follow(self, node: Node, over: set[str]) -> bool:
        if isinstance(node, Child) or node.when or node.id in self._repair or node.id in self._grouped:
            return False
        needs = {*node.data, *node.after}
        if over.isdisjoint(needs) or any(self._status.get(need, "done") != "done" for need in needs - over):
            return False
        changing = {stage for known in over for stage in self._nodes[known].stages}
        return changing.isdisjoint(
            stage for stage, *value in _stage_paths(node) if value or not isinstance(node, Segment)
        )

    def _needs_over(self, node: Node) -> bool:
        return all(self._status.get(need, "done") in ("done", "skipped") for need in (*node.data, *node.after))

    def _wanted(self, node: Node) -> bool:
        if not node.when:
            return True
        verdict = expressions.evaluate(expressions.parse(node.when), self._env)
        if not isinstance(verdict, bool):
            raise expressions.ExpressionError(f"gives {verdict!r}, not true or false", 0)
        return verdict

    def _bindings(self, node: Node) -> dict[str, Any]:
        """The part of the environment that the node's expressions read. This keeps payloads small."""
        found: dict[str, Any] = {}
        for path in node.paths:
            root, *rest = path.split(".")
            if root == "stages" and rest[0] in self._env["stages"]:
                found.setdefault("stages", {})[rest[0]] = self._env["stages"][rest[0]]
            elif root == "state":
                found["state"] = self._env.get("state", {})
        return found

    def _expect_running(self, node: str) -> None:
        if self._status.get(node) != "running" or node in self._groups:
            raise InternalError(f"event for node {node!r}, which is {self._status.get(node)}")

    def _with_status(self, status: str) -> tuple[str, ...]:
        return tuple(node for node, known in self._status.items() if known == status)
