"""What the scheduler is told, and what it tells: plain values, so that both can be written down and compared."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Data(Struct, frozen=True):
    """A dataset that exists: the concrete segments that made it (docs/architecture.md, segment ids)."""

    segments: tuple[str, ...]
    form: str = "plain"
    groups: int = 1


class Summary(Struct, frozen=True):
    """What the graph needs to know of a node that is over."""

    metrics: dict[str, dict[str, Any]] = {}
    """stage -> metric -> value."""
    values: dict[str, Any] = {}
    """stage -> its record, of a reduce whose value expressions want."""
    state: dict[str, Any] = {}
    """A loop's last scalars."""
    data: dict[str, Data] = {}
    """A loop's last datasets."""
    outputs: dict[str, Any] = {}
    """Of a workflow that ran as a child."""
    partitions: int = 0
    rows: int = 0
    size: int = 0
    """Bytes of its blocks and parts."""
    failed_items: int = 0
    read: dict[str, int] = {}
    """Bytes of blocks its tasks got, by the kind of place (see `Outcome.read`)."""
    spilled: int = 0
    """Bytes its tasks wrote to temporary files because they did not fit into memory."""


class Problem(Struct, frozen=True):
    """Why a node failed."""

    failure: str
    """A FailureClass."""
    message: str
    node: str = ""
    details: str = ""
    """Where the full errors are."""
    run: str = ""
    """The child run that they are of; empty: the run itself."""


# -- events ----------


class NodeDone(Struct, frozen=True):
    node: str
    summary: Summary


class NodeGrouped(Struct, frozen=True):
    """The node is wide, and these of its task groups are not closed."""

    node: str
    groups: tuple[int, ...]
    seats: int
    """Groups that drivers can take at once."""
    size: int = 0
    """Partitions of a group; 0: there is nothing to repair."""


class GroupDone(Struct, frozen=True):
    """A task group is closed."""

    node: str
    group: int
    seats: int = 0
    """As above, now; 0: as before."""


class NodeFailed(Struct, frozen=True):
    node: str
    problem: Problem
    group: int = -1
    """Of a wide node; -1: the node itself."""


class NodeLost(Struct, frozen=True):
    """The node stopped because these input blocks have no readable location."""

    node: str
    blocks: tuple[str, ...]
    group: int = -1


class NodeStopped(Struct, frozen=True):
    """The node stopped as told."""

    node: str
    group: int = -1


class Pause(Struct, frozen=True):
    pass


class Unpause(Struct, frozen=True):
    pass


class Limit(Struct, frozen=True):
    """A stage may from now on run so many tasks at once."""

    stage: str
    concurrency: int


class Rest(Struct, frozen=True):
    """Start nothing more; what runs may end."""


Event = NodeDone | NodeGrouped | GroupDone | NodeFailed | NodeLost | NodeStopped | Pause | Unpause | Limit | Rest

# -- instructions ----------


class Run(Struct, frozen=True):
    node: str
    bindings: dict[str, Any]
    """The run-time values its expressions need, as a nested environment."""
    repair: tuple[str, ...] = ()
    """Blocks to make again."""
    limit: int = 0
    group: int = -1
    """A task group of the node; -1: the node itself."""
    then: tuple[Run, ...] = ()
    """Nodes that follow one another: whoever is soon done with one may go on with the next. Those are running, too."""


class Stop(Struct, frozen=True):
    """What runs of the node, all of its groups, is to be stopped."""

    node: str


class Hold(Struct, frozen=True):
    """A child run shall start nothing more, and stay."""

    node: str


class Release(Struct, frozen=True):
    """A child run that was held shall go on."""

    node: str


class Complete(Struct, frozen=True):
    """Every node is over."""


class Fail(Struct, frozen=True):
    problem: Problem


class Escalate(Struct, frozen=True):
    """Blocks from outside this graph are lost: whoever owns them must act."""

    blocks: tuple[str, ...]


Instruction = Run | Stop | Hold | Release | Complete | Fail | Escalate
