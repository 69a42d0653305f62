"""The plan: a spec made physical. Computed once for a run, stored sealed, never recomputed on resume.

A plan is a graph of **nodes**. A node is a segment (work for an executor), a loop (a graph of its own, repeated), or a
barrier (a point in the graph). Node ids are stage ids, or `stage.role` where one stage needs several segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from treadle.executors.interface import Capabilities
from treadle.executors.program import EventSplit, Op, PartOutput, Tail
from treadle.primitives.blocks import Durability
from treadle.primitives.formats import FileSplit

# -- datasets ----------


Form = Literal["plain", "cut", "scattered"]


class NodeData(Struct, frozen=True, tag="node"):
    """What segments made. `plain`: a block for each partition; `cut`: several; `scattered`: one part for each target.

    Several nodes: the inputs of one shuffle, in order; plain partitions are then those of the first, the second, ...
    """

    nodes: tuple[str, ...]
    form: Form = "plain"
    groups: int = 1
    """Scattered: the blocks of each node are so many equal runs, one for each group of consecutive targets."""


class StateData(Struct, frozen=True, tag="state"):
    """A loop's state as its body sees it."""

    name: str


class LoopData(Struct, frozen=True, tag="loop"):
    """A loop's last state as the stages after it see it."""

    loop: str
    name: str


DataRef = NodeData | StateData | LoopData

# -- where a segment's partitions come from ----------


class FilesFeed(Struct, frozen=True, tag="files"):
    splits: tuple[FileSplit, ...]


class ItemsFeed(Struct, frozen=True, tag="items"):
    items: tuple[Any, ...]
    bounds: tuple[tuple[int, int], ...]


class RangeFeed(Struct, frozen=True, tag="range"):
    """The integers 0 .. count-1 in `partitions` balanced runs, each cut again into runs of at most `cut` (0: not)."""

    count: int
    partitions: int
    cut: int = 0


class EventsFeed(Struct, frozen=True, tag="events"):
    """Records of a Kafka partition; `bounds` count those that belong."""

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
    """The second level of a wide shuffle: for each group, then each run of sources, a partition reads its bundles."""

    data: NodeData
    run: int
    """Consecutive blocks of `data` that one partition reads from; the last run may be shorter."""


Feed = FilesFeed | ItemsFeed | RangeFeed | EventsFeed | NarrowFeed | AllFeed | GroupFeed | BundleFeed

# -- how a segment behaves ----------


class Kept(Struct, frozen=True):
    """How the result of a segment is kept for later runs."""

    version: str
    """What the author says the result is of, beside its code and inputs."""
    ttl: float
    """Seconds after which it is not taken any more."""


class Policy(Struct, frozen=True):
    """The settings in force for a segment: stage over defaults over decorator."""

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
    """What of the segment's blocks survives the loss of a host."""
    gang: int = 0
    """So many partitions, which is all of them, run together; 0: each by itself."""
    backups: bool = True
    """A straggler may run a second time beside itself."""
    cache: Kept | None = None
    """What is committed is kept for later runs; None: it is not."""


class Tolerance(Struct, frozen=True):
    """How many records of a stage may finally fail, and where they are listed."""

    count: int = -1
    """Judged at once; -1: no count."""
    percent: float = -1.0
    """Of the records that entered, judged at the end; -1: no percentage."""
    failed_items: str = ""
    """URI, or empty."""


class OutputSpec(Struct, frozen=True):
    part: PartOutput
    if_exists: Literal["fail", "replace"] = "fail"


class Shipped(Struct, frozen=True):
    """Where the value of a broadcast is: the one record of the one block of a dataset."""

    data: DataRef
    stage: str
    limit: int = 0
    """Bytes that whoever reads it lets pass, since the broadcast has no task that did; 0: it has."""


class Segment(Struct, frozen=True, tag="segment"):
    """Work for an executor: fused narrow stages between exchanges.

    Arguments inside `ops` and `tail` are `Value`s that may still hold templates; `${{ stages.X }}` of a broadcast X,
    and `${{ cuts.S }}` for sampled boundaries, are looked up in `broadcasts`.
    """

    id: str
    stages: tuple[str, ...]
    """Stages done when this segment is; the last one owns the output."""
    feed: Feed
    ops: tuple[Op, ...]
    tail: Tail
    policy: Policy
    data: tuple[str, ...] = ()
    """Nodes whose data this one reads; skipped when one of them is."""
    after: tuple[str, ...] = ()
    """Nodes that must be over; a skipped one counts as over."""
    when: str = ""
    paths: tuple[str, ...] = ()
    """Run-time values its arguments need: `stages.X.metrics.m`, `state.x`, ..."""
    broadcasts: dict[str, Shipped] = {}
    """Template path -> node that made the value."""
    partitions: int = 0
    """0: known only when the input is."""
    put: Literal["host", "store"] = "store"
    output: OutputSpec | None = None
    tolerated: dict[str, Tolerance] = {}
    metrics: dict[str, dict[str, str]] = {}
    """stage -> declared metric -> sum | min | max | JSON type."""
    quorum: float = 100.0
    """Percent of the partitions that close the segment."""
    estimate: int = 0
    """Bytes that come out; a guess for placement only."""
    group: int = 0
    """Partitions of a task group; 0: one activity drives them all."""
    reasons: tuple[str, ...] = ()


class Barrier(Struct, frozen=True, tag="barrier"):
    """A point in the graph, whose data is its input's: a barrier, or a broadcast of what is one record already."""

    id: str
    stages: tuple[str, ...]
    data: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    paths: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    does: str = "wait for the input"


class Loop(Struct, frozen=True, tag="loop"):
    """A graph repeated with state. States and `next` are DataRefs, or JSON values (templates included)."""

    id: str
    stages: tuple[str, ...]
    state: dict[str, DataRef | None]
    """A dataset state; None: the scalar in `scalars`."""
    scalars: dict[str, Any]
    body: Graph
    next: dict[str, DataRef | None]
    next_scalars: dict[str, Any]
    max_iterations: int
    until: str = ""
    on_exhausted: Literal["fail", "succeed"] = "fail"
    cache: Kept | None = None
    """Its last state is kept for later runs; that of an inner loop is not."""
    carried: dict[str, tuple[str, ...]] = {}
    """Dataset of `next` -> nodes of the body that must not be skipped for it to be."""
    data: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    paths: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


class Child(Struct, frozen=True, tag="child"):
    """A workflow that runs as a run of its own, with a plan of its own: what that reads may come from this run."""

    id: str
    stages: tuple[str, ...]
    workflow: str
    """Its name."""
    graph: Graph | None = None
    """What would be planned now, for people; None: its inputs are not known yet."""
    data: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    when: str = ""
    paths: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


Node = Segment | Barrier | Loop | Child


class Graph(Struct, frozen=True):
    """Nodes in topological order."""

    nodes: tuple[Node, ...]
    outputs: dict[str, str] = {}
    """stage -> URI its output is written to."""

    def node(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def walk(self) -> Iterator[Node]:
        """Nodes at every depth, a loop before those inside of it. What is inside of a child is a graph of its own."""
        for node in self.nodes:
            yield node
            if isinstance(node, Loop):
                yield from node.body.walk()

    def nodes_of(self, stage: str) -> tuple[Node, ...]:
        """The nodes that must be over for the stage to be."""
        return tuple(node for node in self.nodes if stage in node.stages)


class Plan(Struct, frozen=True):
    started: str
    """First start of the run, RFC 3339, UTC."""
    graph: Graph
    outputs: dict[str, Any]
    """The workflow's outputs; templates."""
    datasets: dict[str, DataRef]
    """stage -> where its data is, for `treadle result`."""
    inexact: tuple[str, ...] = ()
    """Why two runs of this plan may differ."""
    settings: dict[str, dict[str, Any]] = {}
    """Function -> settings taken from its decorator."""
    executors: dict[str, Capabilities] = {}
    """What the executors that it uses could do when it was made."""
    not_kept: dict[str, str] = {}
    """Stages that shall be kept for later runs and cannot be -> the reason."""
