"""What crosses Temporal: small JSON documents, references only.

Typed structs travel as their JSON text, so that one codec (msgspec) rules them all; Temporal sees plain dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec
from temporalio.common import SearchAttributeKey

from treadle.executors.program import Keep
from treadle.primitives.encoding.decoding import known
from treadle.primitives.errors import FailureClass

from ..dispatcher.orders import Orders
from ..plan.plan import Child, Graph, ItemsFeed, Loop, Node, Policy, Segment
from ..scheduler.instructions import Problem, Summary

WORKFLOW = "treadle.run"
GROUPS = ".groups"
"""What the name of a queue is followed by to be that of its task groups, of which a driver takes a few at a time."""
OPEN_RUN = "treadle.open"
RUN_NODE = "treadle.node"
END_RUN = "treadle.end"
STEER = "steer"
"""The update with a Steering, and the signal with a ParentSteering."""
STALE = "stale"
"""The type of the refusal of a Steering that was made for another execution."""
STOPPING = "stopping"
PAYLOAD = 1_900_000
"""Bytes of a document: the server takes no more than 2 MB, with what is written around it."""
TRIGGER = SearchAttributeKey.for_keyword("TreadleTrigger")
"""`<workflow>.<trigger>` of runs that a trigger started."""
LEFT = "not asked for"
"""How a run fails that was told to go on with some of its nodes, when they are done and others are not."""

T = TypeVar("T")


@dataclass
class RunStart:
    """Input of the workflow."""

    run: str
    digest: str
    """SHA-256 of the submission, which is in the store; of a child run: of its parent's."""
    resumption: int = 1
    assume: str = ""
    paused: bool = False
    limits: dict[str, int] = field(default_factory=dict)
    """Set by people while it ran; carried over when the history is cut."""
    since: dict[str, float] = field(default_factory=dict)
    """wide node -> when its first group began, likewise."""
    only: list[str] = field(default_factory=list)
    """Nodes to go on with; what needs more than these waits for another resumption. Empty: everything goes on."""
    bindings: dict[str, Any] = field(default_factory=dict)
    """Of a child run: the values of its parent's stages that its inputs mention."""
    steered: int = 0
    """Of a child run: the number of the last ParentSteering; carried over when the history is cut."""


@dataclass
class Steering:
    """A request to change a run under way. It is bound to one execution, so that it takes effect once."""

    action: Literal["pause", "unpause", "limit"]
    execution: str
    """Temporal's run id."""
    id: str
    """The update's id: the server takes each only once."""
    stage: str = ""
    concurrency: int = 0


@dataclass
class ParentSteering:
    """What a parent run tells its child."""

    action: Literal["pause", "unpause"]
    resumption: int
    number: int
    """Counts up: a message that comes again changes nothing."""


@dataclass
class Ticket:
    """What an activity was asked, which its answer repeats: an answer to another request counts for nothing."""

    execution: str = ""
    """Temporal's run id."""
    number: int = 0


@dataclass
class Opened:
    """What the workflow needs to schedule: the graph without its data plane."""

    graph: str
    env: dict[str, Any]
    outputs: dict[str, Any]
    done: dict[str, str]
    """node -> Summary of a node found closed."""
    tells: bool = False
    """Somebody wants to hear how the run ends."""
    groups: dict[str, list[int]] = field(default_factory=dict)
    """wide node -> its task groups that are not closed, as far as the plan knows how many there are."""
    seats: int = 0
    """Groups that drivers can take at once."""
    digest: str = ""
    """Of the submission."""
    left: list[str] = field(default_factory=list)
    """Nodes that this resumption leaves for another one; they are not in the graph."""
    runs: dict[str, str] = field(default_factory=dict)
    """node -> the child run that it is."""
    ahead: int = 0
    """Nodes that may follow another in one activity."""
    ticket: Ticket = field(default_factory=Ticket)


@dataclass
class NodeOrder:
    run: str
    node: str
    orders: str
    passed: list[str] = field(default_factory=list)
    """Barriers passed since the last order, where somebody wants to hear of them."""
    group: int = -1
    """A task group of the node; -1: the node itself."""
    since: float = 0.0
    """Of a group: when the first one of its node began, in seconds since the epoch."""
    then: list[NodeOrder] = field(default_factory=list)
    """For nodes that follow one another, as long as that is soon done."""
    ticket: Ticket = field(default_factory=Ticket)


@dataclass
class Ending:
    """How a run ended, for who wants to hear."""

    run: str
    resumption: int
    state: Literal["completed", "failed", "cancelled"]
    outputs: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    problem: str = ""
    passed: list[str] = field(default_factory=list)


@dataclass
class NodeReport:
    """How a node's activity ended; exactly one is set, beside what it did before."""

    summary: str = ""
    problem: str = ""
    lost: list[str] = field(default_factory=list)
    stopped: bool = False
    groups: list[int] = field(default_factory=list)
    """The node is wide, and these of its task groups are not closed."""
    closed: bool = False
    """The task group is."""
    seats: int = 0
    """With the two above: groups that drivers can take at once."""
    size: int = 0
    """With `groups`: partitions of one."""
    before: dict[str, str] = field(default_factory=dict)
    """node -> Summary of those that were done before it."""
    ticket: Ticket = field(default_factory=Ticket)

    @classmethod
    def refused(cls, reason: str) -> NodeReport:
        """What stands for a report that treadle did not write."""
        return cls(problem=pack(forged(reason)))


@dataclass
class Received:
    """The answer of the activity that publishes how a run ended."""

    @classmethod
    def refused(cls, reason: str) -> Received:  # noqa: ARG003  # nothing depends on the answer
        return cls()


def forged(reason: str) -> Problem:
    """Why a node fails whose report treadle did not write."""
    text = f"refused a message that came through Temporal: {reason}. Nothing of it was used; resume the run"
    return Problem(str(FailureClass.FORGED), text)


def pack(value: Summary | Problem | Orders | Graph) -> str:
    return msgspec.json.encode(value).decode()


def unpack(text: str, kind: type[T]) -> T:
    return msgspec.json.decode(text, type=known(kind))


def slim(graph: Graph) -> Graph:
    """The graph as the scheduler needs it: no feeds, no operations, no bodies."""
    return Graph(tuple(_slim_node(node) for node in graph.nodes), graph.outputs)


def _slim_node(node: Node) -> Node:
    if isinstance(node, Segment):
        kept = {"id", "stages", "data", "after", "when", "paths", "metrics"}
        known = {name: value for name, value in msgspec.structs.asdict(node).items() if name in kept}
        return Segment(feed=ItemsFeed((), ()), ops=(), tail=Keep(), policy=Policy(), **known)
    if isinstance(node, Loop):
        emptied: dict[str, Any] = {name: {} for name in ("state", "scalars", "next", "next_scalars", "carried")}
        return msgspec.structs.replace(node, body=Graph(()), reasons=(), **emptied)
    if isinstance(node, Child):
        return msgspec.structs.replace(node, graph=None, reasons=())
    return msgspec.structs.replace(node, reasons=())
