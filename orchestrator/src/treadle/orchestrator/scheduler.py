"""The one scheduler: what runs next. Pure: events in, instructions out; no clock, no I/O.

It drives the Temporal workflow over the top graph of a plan and the loop activity over a loop's body.

A node is `waiting` until its needs are over, then `running`, and ends `done` or `skipped`:

    waiting --needs over--> running --NodeDone--> done
    waiting --when false, or data skipped--> skipped
    running --NodeStopped (pause, new limits)--> waiting
    running --NodeLost (input blocks gone)--> waiting, and the producers done --> waiting with `repair`
    running --NodeFailed--> failed; nothing new starts, what runs is stopped, then the graph has failed

Illegal events raise InternalError and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from treadle.dsl import expressions
from treadle.primitives.errors import InternalError

from .plan import Graph, Loop, Node, Segment

MAXIMUM_REPAIRS = 10
"""Times a node is run again because its blocks were lost, before the run fails."""


class Data(Struct, frozen=True):
    """A dataset that exists: the concrete segments that made it (docs/architecture.md, segment ids)."""

    segments: tuple[str, ...]
    form: str = "plain"
    groups: int = 1


class Summary(Struct, frozen=True):
    """What the graph needs to know of a node that is over."""

    metrics: dict[str, dict[str, Any]] = {}
    """stage -> metric -> value."""
    state: dict[str, Any] = {}
    """A loop's last scalars."""
    data: dict[str, Data] = {}
    """A loop's last datasets."""
    partitions: int = 0
    rows: int = 0
    size: int = 0
    """Bytes of its blocks and parts."""
    failed_items: int = 0
    read: dict[str, int] = {}
    """Bytes of blocks its tasks got, by the kind of place: inline, host, peer, store."""


class Problem(Struct, frozen=True):
    """Why a node failed."""

    failure: str
    """A FailureClass."""
    message: str
    node: str = ""
    details: str = ""
    """Where the full errors are."""


# -- events ----------


class NodeDone(Struct, frozen=True):
    node: str
    summary: Summary


class NodeFailed(Struct, frozen=True):
    node: str
    problem: Problem


class NodeLost(Struct, frozen=True):
    """The node stopped because these input blocks have no readable location."""

    node: str
    blocks: tuple[str, ...]


class NodeStopped(Struct, frozen=True):
    """The node stopped as told."""

    node: str


class Pause(Struct, frozen=True):
    pass


class Unpause(Struct, frozen=True):
    pass


class Limit(Struct, frozen=True):
    """A stage may from now on run so many tasks at once."""

    stage: str
    concurrency: int


Event = NodeDone | NodeFailed | NodeLost | NodeStopped | Pause | Unpause | Limit

# -- instructions ----------


class Run(Struct, frozen=True):
    node: str
    bindings: dict[str, Any]
    """The run-time values its expressions need, as a nested environment."""
    repair: tuple[str, ...] = ()
    """Blocks to make again."""
    limit: int = 0


class Stop(Struct, frozen=True):
    node: str


class Complete(Struct, frozen=True):
    """Every node is over."""


class Fail(Struct, frozen=True):
    problem: Problem


class Escalate(Struct, frozen=True):
    """Blocks from outside this graph are lost: whoever owns them must act."""

    blocks: tuple[str, ...]


Instruction = Run | Stop | Complete | Fail | Escalate


def segment_of(block: str) -> str:
    """The concrete segment a block belongs to: `lloyd-3/assign/0.1.ab` -> `lloyd-3/assign`."""
    return block.rsplit("/", 1)[0]


class Scheduler:
    """State of one graph. `prefix` is the path of concrete segment ids in it: empty, or `lloyd-3/`."""

    def __init__(
        self,
        graph: Graph,
        env: Mapping[str, Any],
        done: Mapping[str, Summary] | None = None,
        prefix: str = "",
    ) -> None:
        self._nodes: dict[str, Node] = {node.id: node for node in graph.nodes}
        self._status = dict.fromkeys(self._nodes, "waiting")
        self._graph = graph
        self._prefix = prefix
        self._env: dict[str, Any] = {**env, "stages": dict(env.get("stages", {}))}
        self._summaries: dict[str, Summary] = {}
        self._repair: dict[str, set[str]] = {}
        self._repairs: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._problem: Problem | None = None
        self._escalated: set[str] = set()
        self._paused = False
        self._over = False
        for node, summary in (done or {}).items():
            if node in self._nodes:
                self._finish(node, summary)

    # -- what is seen from outside

    @property
    def env(self) -> dict[str, Any]:
        """`inputs`, `run`, `state`, and `stages` as far as they are over."""
        return self._env

    @property
    def running(self) -> tuple[str, ...]:
        return self._with_status("running")

    @property
    def skipped(self) -> tuple[str, ...]:
        return self._with_status("skipped")

    @property
    def summaries(self) -> Mapping[str, Summary]:
        return self._summaries

    def limit_of(self, node_id: str) -> int:
        """Tasks at once, when a person set it; 0: the plan's own."""
        limits = [self._limits[stage] for stage in self._nodes[node_id].stages if stage in self._limits]
        return min(limits, default=0)

    # -- events

    def start(self) -> list[Instruction]:
        return self._advance()

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case NodeDone(node, summary):
                self._expect_running(node)
                self._finish(node, summary)
                if self._repair.get(node):
                    self._status[node] = "waiting"
            case NodeStopped(node):
                self._expect_running(node)
                self._status[node] = "waiting"
            case NodeFailed(node, problem):
                self._expect_running(node)
                return self._fail(node, problem)
            case NodeLost(node, blocks):
                self._expect_running(node)
                return self._lost(node, blocks)
            case Pause():
                self._paused = True
                return self._stop_all()
            case Unpause():
                self._paused = False
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
                continue  # another node of the stage was skipped, and so is the stage
            known["metrics"] = {**known["metrics"], **summary.metrics.get(stage, {})}
            if isinstance(node, Loop):
                known["state"] = dict(summary.state)

    def _skip(self, node_id: str) -> None:
        """A skipped stage is null, and so is everything below it."""
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

    def _lost(self, node_id: str, blocks: Iterable[str]) -> list[Instruction]:
        self._status[node_id] = "waiting"
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

    def _producer(self, block: str) -> str | None:
        segment = segment_of(block)
        if not segment.startswith(self._prefix):
            return None
        local = segment[len(self._prefix) :]
        if "/" in local:
            local = local.split("/", 1)[0].rsplit("-", 1)[0]
        return local if local in self._nodes else None

    def _stop_all(self) -> list[Instruction]:
        return [Stop(node) for node in self.running]

    # -- what next

    def _advance(self) -> list[Instruction]:
        if self._problem is not None or self._escalated:
            return self._close()
        if self._paused or self._over:
            return []
        instructions: list[Instruction] = []
        for node in self._nodes.values():
            if self._status[node.id] == "waiting" and self._needs_over(node):
                try:
                    instructions += self._begin(node)
                except expressions.ExpressionError as error:
                    text = f"`when: {node.when}` of {node.id} cannot be judged: {error}"
                    return self._fail(node.id, Problem("user error", text, node=node.id))
        if not instructions and all(status in ("done", "skipped") for status in self._status.values()):
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
        if not isinstance(node, Segment | Loop):
            self._finish(node.id, Summary())
            return []
        self._status[node.id] = "running"
        repair = tuple(sorted(self._repair.pop(node.id, ())))
        return [Run(node.id, self._bindings(node), repair, self.limit_of(node.id))]

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
        """The part of the environment that the node's expressions read, so that payloads stay small."""
        found: dict[str, Any] = {}
        for path in node.paths:
            root, *rest = path.split(".")
            if root == "stages" and rest[0] in self._env["stages"]:
                found.setdefault("stages", {})[rest[0]] = self._env["stages"][rest[0]]
            elif root == "state":
                found["state"] = self._env.get("state", {})
        return found

    def _expect_running(self, node: str) -> None:
        if self._status.get(node) != "running":
            raise InternalError(f"event for node {node!r}, which is {self._status.get(node)}")

    def _with_status(self, status: str) -> tuple[str, ...]:
        return tuple(node for node, known in self._status.items() if known == status)
