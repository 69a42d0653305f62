"""The plan: a spec compiled to segments. Computed once for a run, stored sealed, never recomputed on resume.

A plan is a graph of **nodes**. A node is a segment (work for an executor), a loop (a graph of its own, repeated), a
barrier (a point in the graph), or a child (a run of its own). Node ids are stage ids, or `stage.role` where one stage
needs several segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from msgspec import Struct

from treadle.executors.interface import Capabilities
from treadle.executors.program import EventSplit, Keep, Op, PartOutput, Tail
from treadle.primitives.formats import FileSplit

OBJECTS = "objects."
"""The nodes of an object `x` belong to `objects.x`, which stands among the stages."""

Durability = Literal["", "task", "segment"]
"""The blocks that survive the loss of a host: none (""), the block of every committed task, or the blocks of every
closed segment.
"""

# -- datasets ----------


Form = Literal["plain", "cut", "scattered"]


class NodeData(Struct, frozen=True, tag="node"):
    """The output of segments. `plain`: a block for each partition; `cut`: several; `scattered`: one part for each
    target.

    Several nodes are the inputs of one shuffle, in order. Plain partitions are then numbered node by node.
    """

    nodes: tuple[str, ...]
    form: Form = "plain"
    groups: int = 1
    """Scattered: the blocks of each node form this many equal runs, one for each group of consecutive targets."""


class StateData(Struct, frozen=True, tag="state"):
    """A loop's state, for its body."""

    name: str


class LoopData(Struct, frozen=True, tag="loop"):
    """A loop's last state, for the stages after it."""

    loop: str
    name: str


DataRef = NodeData | StateData | LoopData

# -- sources of a segment's partitions ----------


class FilesFeed(Struct, frozen=True, tag="files"):
    splits: tuple[FileSplit, ...]


class ItemsFeed(Struct, frozen=True, tag="items"):
    items: tuple[Any, ...]
    bounds: tuple[tuple[int, int], ...]


class RangeFeed(Struct, frozen=True, tag="range"):
    """The integers 0 .. count-1 in `partitions` balanced runs. Each is cut into runs of at most `cut` integers; 0: not
    cut."""

    count: int
    partitions: int
    cut: int = 0


class EventsFeed(Struct, frozen=True, tag="events"):
    """Records of a Kafka partition. `bounds` count the selected records."""

    split: EventSplit
    bounds: tuple[tuple[int, int], ...]


class NarrowFeed(Struct, frozen=True, tag="narrow"):
    """Partition i reads partition i."""

    data: DataRef


class AllFeed(Struct, frozen=True, tag="all"):
    """One partition reads all."""

    data: DataRef


class GroupFeed(Struct, frozen=True, tag="group"):
    """A level of a reduce tree: partition i reads the i-th group of `fan_in` consecutive non-empty partitions."""

    data: DataRef
    fan_in: int


class BundleFeed(Struct, frozen=True, tag="bundles"):
    """The second level of a wide shuffle: for each group and each run of sources, a partition reads its bundles."""

    data: NodeData
    run: int
    """Consecutive blocks of `data` that one partition reads. The last run may be shorter."""


class EffectsFeed(Struct, frozen=True, tag="effects"):
    """One partition reads the effects of all partitions of a segment, in their order. None, if `stage` was skipped."""

    data: NodeData
    stage: str


class CallsFeed(Struct, frozen=True, tag="calls"):
    """The calls of a session, which come while the segment runs (`run_store.call_log`)."""


Feed = (
    FilesFeed
    | ItemsFeed
    | RangeFeed
    | EventsFeed
    | NarrowFeed
    | AllFeed
    | GroupFeed
    | BundleFeed
    | EffectsFeed
    | CallsFeed
)

# -- policies of segments ----------


class Kept(Struct, frozen=True):
    """The cache settings of a segment's result, for reuse by later runs."""

    version: str
    """The author's version of the result. It counts in addition to code and inputs."""
    ttl: float
    """Seconds after which the result expires."""


class Policy(Struct, frozen=True):
    """The settings in force for a segment. A stage's setting precedes the workflow's default, which precedes the
    decorator's."""

    maximum_attempts: int = 3
    initial_interval: float = 0.2
    backoff_coefficient: float = 2.0
    maximum_interval: float = 30.0
    non_retryable: tuple[str, ...] = ()
    timeout: float = 0.0
    deadline: float = 0.0
    max_concurrency: int = 0
    memory_start: int = 0
    memory_max: int = 0
    executor: str = "local"
    idempotent: bool = True
    exchange: Literal["auto", "storage", "direct"] = "auto"
    durability: Durability = ""
    """The durability of the segment's blocks when a host is lost."""
    gang: int = 0
    """The number of partitions, all of which run together. 0: each runs by itself."""
    backups: bool = True
    """True: a straggler may get a second attempt at the same time."""
    cache: Kept | None = None
    """Cache settings of the committed result. None: it is not cached."""


class Tolerance(Struct, frozen=True):
    """The tolerated number of finally failed records of a stage, and the place of their list."""

    count: int = -1
    """Maximum count, checked at once. -1: none."""
    percent: float = -1.0
    """Maximum percentage of the records that entered, checked at the end. -1: none."""
    failed_items: str = ""
    """URI, or empty."""


class OutputSpec(Struct, frozen=True):
    part: PartOutput
    if_exists: Literal["fail", "replace"] = "fail"


class Shipped(Struct, frozen=True):
    """The place of a broadcast's value: the one record in the one block of a dataset."""

    data: DataRef
    stage: str
    limit: int = 0
    """Maximum of bytes, checked by the reader, if no task of the broadcast has checked it. 0: checked already."""


NodeKind = Literal["segment", "barrier", "loop", "workflow"]


class Segment(Struct, frozen=True, tag="segment"):
    """Work for an executor: fused narrow stages between exchanges.

    Arguments inside `ops` and `tail` are `Value`s that may still hold templates. `${{ stages.X }}` of a broadcast X,
    and `${{ cuts.S }}` for sampled boundaries, are looked up in `broadcasts`.
    """

    kind: ClassVar[NodeKind] = "segment"
    id: str
    stages: tuple[str, ...]
    """Stages that end with this segment. The last one owns the output."""
    feed: Feed
    ops: tuple[Op, ...]
    tail: Tail
    policy: Policy
    data: tuple[str, ...] = ()
    """Nodes whose data this segment reads. It is skipped if one of them is."""
    after: tuple[str, ...] = ()
    """Nodes that must be over. A skipped node counts as over."""
    when: str = ""
    paths: tuple[str, ...] = ()
    """Run-time values that the arguments need: `stages.X.metrics.m`, `state.x`, ..."""
    broadcasts: dict[str, Shipped] = {}
    """Template path -> the node with the value."""
    partitions: int = 0
    """0: known only with the input."""
    put: Literal["host", "store"] = "store"
    output: OutputSpec | None = None
    tolerated: dict[str, Tolerance] = {}
    metrics: dict[str, dict[str, str]] = {}
    """stage -> declared metric -> sum | min | max | JSON type."""
    quorum: float = 100.0
    """Percentage of the partitions that suffices to close the segment."""
    estimate: int = 0
    """Bytes of output; a guess for placement only."""
    group: int = 0
    """Partitions in a task group. 0: one activity drives all partitions."""
    reasons: tuple[str, ...] = ()


def merged_objects(op: Op) -> list[str]:
    """The objects that functions of the operation may change."""
    calls = (getattr(op, name, None) for name in ("call", "uses", "finish"))
    used = {name: one for call in calls if call is not None for name, one in call.objects.items()}
    return [name for name, one in used.items() if one.merges]


class BarrierNode(Struct, frozen=True, tag="barrier"):
    """A point in the graph with the same data as its input: a barrier, or a broadcast of an input with a single
    record."""

    kind: ClassVar[NodeKind] = "barrier"
    id: str
    stages: tuple[str, ...]
    data: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    paths: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    does: str = "wait for the input"


class LoopNode(Struct, frozen=True, tag="loop"):
    """A graph repeated with state. States and `next` are DataRefs, or JSON values (templates included)."""

    kind: ClassVar[NodeKind] = "loop"
    id: str
    stages: tuple[str, ...]
    state: dict[str, DataRef | None]
    """The dataset of each state. None: the state is a scalar in `scalars`."""
    scalars: dict[str, Any]
    body: Graph
    next: dict[str, DataRef | None]
    next_scalars: dict[str, Any]
    max_iterations: int
    until: str = ""
    on_exhausted: Literal["fail", "succeed"] = "fail"
    cache: Kept | None = None
    """Cache settings of the last state. An inner loop's state is not cached."""
    carried: dict[str, tuple[str, ...]] = {}
    """Dataset of `next` -> nodes of the body that must run for the dataset to exist."""
    data: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    paths: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


class Child(Struct, frozen=True, tag="child"):
    """A workflow that runs as a run of its own, with a plan of its own. Its inputs may come from this run."""

    kind: ClassVar[NodeKind] = "workflow"
    id: str
    stages: tuple[str, ...]
    workflow: str
    """The name of the child workflow."""
    graph: Graph | None = None
    """The plan that would be made now, for display. None: the inputs are not known yet."""
    data: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    paths: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


Node = Segment | BarrierNode | LoopNode | Child


def node_of(segment: str) -> str:
    """The plan's node of a segment in iterations of loops: `assign` for `lloyd-3/assign`."""
    return segment.rpartition("/")[2]


class Graph(Struct, frozen=True):
    """Nodes in topological order."""

    nodes: tuple[Node, ...]
    outputs: dict[str, str] = {}
    """Stage -> URI of its output."""

    def node(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def walk(self) -> Iterator[Node]:
        """Nodes at every depth, a loop before its body. The nodes of a child belong to another graph and are left
        out."""
        for node in self.nodes:
            yield node
            if isinstance(node, LoopNode):
                yield from node.body.walk()

    def edges(self) -> Iterator[tuple[str, str]]:
        """(source, consumer) between the nodes of a level. The first nodes in the body of a loop consume the loop."""
        known = {node.id for node in self.nodes}
        for node in self.nodes:
            yield from ((need, node.id) for need in sorted({*node.data, *node.after} & known))
            if isinstance(node, LoopNode):
                yield from ((node.id, first) for first in node.body.first())
                yield from node.body.edges()

    def first(self) -> list[str]:
        """The nodes that need no other node."""
        known = {node.id for node in self.nodes}
        return [node.id for node in self.nodes if not known & {*node.data, *node.after}]

    def nodes_of(self, stage: str) -> tuple[Node, ...]:
        """The nodes that must be over for the stage to be over."""
        return tuple(node for node in self.nodes if stage in node.stages)


class Plan(Struct, frozen=True):
    started: str
    """First start of the run, RFC 3339, UTC."""
    graph: Graph
    outputs: dict[str, Any]
    """The workflow's outputs, as templates."""
    datasets: dict[str, DataRef]
    """Stage -> its data, for `treadle result`."""
    inexact: tuple[str, ...] = ()
    """Reasons why two runs of this plan may differ."""
    settings: dict[str, dict[str, Any]] = {}
    """Function -> settings from its decorator."""
    executors: dict[str, Capabilities] = {}
    """The capabilities of the used executors when the plan was made."""
    not_kept: dict[str, str] = {}
    """Stage with cache settings that cannot be cached -> the reason."""


CALLS = "calls"
"""The only node of a session's plan, and the segment that owns the ledger of all its calls."""


def session_plan(started: str, executor: str, can: Capabilities) -> Plan:
    """The plan of a session. Its segment opens a segment of its own for each function. `executor`: of calls that name
    none."""
    policy = Policy(executor=executor)
    calls = Segment(CALLS, (CALLS,), CallsFeed(), (), Keep(), policy, reasons=("its clients make the calls",))
    return Plan(started, Graph((calls,)), {}, {}, executors={executor: can})
