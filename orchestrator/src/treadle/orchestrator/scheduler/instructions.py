"""The scheduler's events and instructions: plain values, so that both can be recorded and compared."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Data(Struct, frozen=True):
    """A dataset that exists, given by its concrete segments (docs/architecture.md, segment ids)."""

    segments: tuple[str, ...]
    form: str = "plain"
    groups: int = 1


class Summary(Struct, frozen=True):
    """The facts about a finished node that the graph needs."""

    metrics: dict[str, dict[str, Any]] = {}
    """Stage -> metric -> value."""
    values: dict[str, Any] = {}
    """Stage -> its record, for a reduce whose value expressions read."""
    state: dict[str, Any] = {}
    """A loop's last scalars."""
    data: dict[str, Data] = {}
    """A loop's last datasets."""
    outputs: dict[str, Any] = {}
    """The outputs of a workflow that ran as a child."""
    partitions: int = 0
    rows: int = 0
    size: int = 0
    """Bytes of the node's blocks and parts."""
    failed_items: int = 0
    read: dict[str, int] = {}
    """Kind of place -> bytes of blocks that the node's tasks read from there (see `Outcome.read`)."""
    spilled: int = 0
    """Bytes that the node's tasks wrote to temporary files because they did not fit into memory."""


class Problem(Struct, frozen=True):
    """The reason why a node failed."""

    failure: str
    """A FailureClass."""
    message: str
    node: str = ""
    details: str = ""
    """The place of the full errors."""
    run: str = ""
    """The child run with the failure. Empty: the run itself."""


# -- events ----------


class NodeDone(Struct, frozen=True):
    node: str
    summary: Summary


class NodeGrouped(Struct, frozen=True):
    """These task groups of a wide node are not closed."""

    node: str
    groups: tuple[int, ...]
    seats: int
    """Groups that drivers can take at once."""
    size: int = 0
    """Partitions in a group. 0: nothing to repair."""


class GroupDone(Struct, frozen=True):
    """A task group is closed."""

    node: str
    group: int
    seats: int = 0
    """Groups that drivers can take at once now. 0: as before."""


class NodeFailed(Struct, frozen=True):
    node: str
    problem: Problem
    group: int = -1
    """A task group of a wide node. -1: the node itself."""


class NodeLost(Struct, frozen=True):
    """The node stopped because these input blocks have no readable location."""

    node: str
    blocks: tuple[str, ...]
    group: int = -1


class NodeStopped(Struct, frozen=True):
    """The node stopped as ordered."""

    node: str
    group: int = -1


class Pause(Struct, frozen=True):
    pass


class Unpause(Struct, frozen=True):
    pass


class Limit(Struct, frozen=True):
    """From now on a stage may run this many tasks at once."""

    stage: str
    concurrency: int


class Rest(Struct, frozen=True):
    """Start nothing more. Running nodes may end."""


Event = NodeDone | NodeGrouped | GroupDone | NodeFailed | NodeLost | NodeStopped | Pause | Unpause | Limit | Rest

# -- instructions ----------


class RunNode(Struct, frozen=True):
    node: str
    bindings: dict[str, Any]
    """The run-time values that the node's expressions need, as a nested environment."""
    repair: tuple[str, ...] = ()
    """Blocks to recompute."""
    limit: int = 0
    group: int = -1
    """The task group of the node. -1: the node itself."""
    then: tuple[RunNode, ...] = ()
    """Further nodes in sequence. An activity that is soon done with one may go on with the next. They count as
    running."""


class Stop(Struct, frozen=True):
    """Stop the node, including all of its groups."""

    node: str


class Hold(Struct, frozen=True):
    """Make a child run start nothing more, without ending it."""

    node: str


class Release(Struct, frozen=True):
    """Make a held child run continue."""

    node: str


class Complete(Struct, frozen=True):
    """Every node is over."""


class Fail(Struct, frozen=True):
    problem: Problem


class Escalate(Struct, frozen=True):
    """Blocks from outside this graph are lost. Their owner must recompute them."""

    blocks: tuple[str, ...]


Instruction = RunNode | Stop | Hold | Release | Complete | Fail | Escalate
