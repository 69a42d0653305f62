"""The messages that pass through Temporal: small JSON documents that hold references only.

They are msgspec structs, which the payload converter writes as JSON (`encryption.MessageConverter`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from treadle.executors.program import Keep
from treadle.primitives.errors import FailureClass

from ..dispatcher.orders import Assumption, Ticket
from ..plan.plan import Child, Graph, ItemsFeed, LoopNode, Node, Policy, Segment
from ..run_requests.requests import WORKFLOW as WORKFLOW
from ..scheduler.instructions import Problem, Summary

GROUPS = ".groups"
"""The suffix that turns a queue's name into its task groups' queue. A driver takes only a few groups at a time."""
OPEN_RUN = "treadle.open"
RUN_NODE = "treadle.node"
END_RUN = "treadle.end"
STEER = "steer"
"""The name of the update with a Steering, and of the signal with a ParentSteering."""
STALE = "stale"
"""The error type of a refused Steering that was made for another execution."""
STOPPING = "stopping"
PAYLOAD = 1_900_000
"""Maximum of bytes in a document. The server accepts 2 MB, envelope included."""
TRIGGER = "TreadleTrigger"
"""The search attribute `<workflow>.<trigger>`, a keyword, of runs that a trigger started."""
LEFT = "not asked for"
"""The failure of a run that was resumed with only some of its nodes, once these are done."""


class RunStart(Struct, frozen=True, omit_defaults=True):
    """Input of the workflow."""

    run: str
    digest: str
    """SHA-256 of the submission in the store. A child run has its parent's."""
    resumption: int = 1
    assume: Assumption = ""
    paused: bool = False
    limits: dict[str, int] = {}
    """Limits that users set while the run went on. Carried over when the history is cut."""
    since: dict[str, float] = {}
    """Wide node -> the start of its first group. Carried over in the same way."""
    only: list[str] = []
    """The nodes to resume. Nodes that need more wait for another resumption. Empty: all nodes."""
    bindings: dict[str, Any] = {}
    """For a child run: the values of its parent's stages that its inputs mention."""
    steered: int = 0
    """For a child run: the number of the last ParentSteering. Carried over when the history is cut."""


class Steering(Struct, frozen=True):
    """A request to change a running run. It is bound to one execution, so that it takes effect once."""

    action: Literal["pause", "unpause", "limit"]
    execution: str
    """Temporal's run id."""
    id: str
    """The id of the update. The server accepts each id only once."""
    stage: str = ""
    concurrency: int = 0


class ParentSteering(Struct, frozen=True):
    """A parent run's message to its child."""

    action: Literal["pause", "unpause"]
    resumption: int
    number: int
    """Counts up, so a repeated message changes nothing."""


class Opened(Struct, omit_defaults=True):
    """The workflow's data for scheduling: the graph without its data plane."""

    graph: Graph
    env: dict[str, Any]
    outputs: dict[str, Any]
    done: dict[str, Summary]
    """Nodes found closed."""
    tells: bool = False
    """True: the driver emits lifecycle events."""
    groups: dict[str, list[int]] = {}
    """Wide node -> its open task groups, if the plan knows their number."""
    seats: int = 0
    """Groups that drivers can take at once."""
    digest: str = ""
    """SHA-256 of the submission."""
    left: list[str] = []
    """Nodes that are left for another resumption and are not in the graph."""
    runs: dict[str, str] = {}
    """Node -> its child run."""
    ahead: int = 0
    """Maximum of further nodes in one activity."""
    ticket: Ticket = Ticket()


class Ending(Struct, frozen=True, omit_defaults=True):
    """The end of a run, for its publication."""

    run: str
    resumption: int
    state: Literal["completed", "failed", "cancelled"]
    outputs: dict[str, Any] = {}
    skipped: list[str] = []
    problem: Problem | None = None
    passed: list[str] = []


class NodeReport(Struct, omit_defaults=True):
    """The end of a node's activity. Exactly one of the results is set; `before` may be set besides."""

    summary: Summary | None = None
    problem: Problem | None = None
    lost: list[str] = []
    stopped: bool = False
    groups: list[int] = []
    """The open task groups of a wide node."""
    closed: bool = False
    """True: the task group is closed."""
    handed_over: bool = False
    """True: the work continues in the driver, for the activity that takes the same order."""
    seats: int = 0
    """With `groups` or `closed`: groups that drivers can take at once."""
    size: int = 0
    """With `groups`: partitions in a group."""
    before: dict[str, Summary] = {}
    """Nodes that were done earlier in the activity."""
    ticket: Ticket = Ticket()

    @classmethod
    def refused(cls, reason: str) -> NodeReport:
        """The replacement for a report that treadle did not write."""
        return cls(problem=forged(reason))


class Received(Struct, frozen=True):
    """The answer of the activity that publishes a run's end."""

    @classmethod
    def refused(cls, reason: str) -> Received:  # noqa: ARG003  # nothing depends on the answer
        return cls()


def forged(reason: str) -> Problem:
    """The failure of a node whose report treadle did not write."""
    text = f"refused a message that came through Temporal: {reason}. Nothing of it was used; resume the run"
    return Problem(str(FailureClass.FORGED), text)


def slim(graph: Graph) -> Graph:
    """The parts of the graph that the scheduler needs: no feeds, operations or bodies."""
    return Graph(tuple(_slim_node(node) for node in graph.nodes), graph.outputs)


def _slim_node(node: Node) -> Node:
    if isinstance(node, Segment):
        kept = {"id", "stages", "data", "after", "when", "paths", "metrics"}
        known = {name: value for name, value in msgspec.structs.asdict(node).items() if name in kept}
        return Segment(feed=ItemsFeed((), ()), ops=(), tail=Keep(), policy=Policy(), **known)
    if isinstance(node, LoopNode):
        emptied: dict[str, Any] = {name: {} for name in ("state", "scalars", "next", "next_scalars", "carried")}
        return msgspec.structs.replace(node, body=Graph(()), reasons=(), **emptied)
    if isinstance(node, Child):
        return msgspec.structs.replace(node, graph=None, reasons=())
    return msgspec.structs.replace(node, reasons=())
