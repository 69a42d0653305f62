"""A pipeline under construction: the narrow stages that will be one segment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from treadle.dsl.model import ShuffleStage
from treadle.executors.program import By, Discard, Keep, Op, Scatter, Tail

from ..plan.plan import DataRef, Feed, OutputSpec, Policy, Segment, Shipped, Tolerance
from .transport import Edge, RunLocation, choose_place


@dataclass
class Dataset:
    """The data of a stage, with the facts that its readers need."""

    ref: DataRef
    partitions: int
    """0: known only at run time."""
    estimate: int
    nodes: frozenset[str]
    """Nodes to wait for. If one of them is skipped, the readers are skipped too."""
    limit: int = 0
    """The limit of a broadcast without a task of its own, in bytes."""


@dataclass
class Pipeline:
    """A feed with the operations so far. Call `segment` once to make it a Segment."""

    feed: Feed
    partitions: int
    estimate: int
    ops: list[Op] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    data: set[str] = field(default_factory=set)
    after: set[str] = field(default_factory=set)
    """Stage ids, replaced by node ids at the end."""
    when: str = ""
    paths: set[str] = field(default_factory=set)
    broadcasts: dict[str, Shipped] = field(default_factory=dict)
    policy: Policy | None = None
    tolerated: dict[str, Tolerance] = field(default_factory=dict)
    metrics: dict[str, dict[str, str]] = field(default_factory=dict)
    output: OutputSpec | None = None
    quorum: float = 100.0
    kept: bool = False
    """True: nothing in the workflow reads the data, but the user may, even after the run."""
    reasons: list[str] = field(default_factory=list)

    def segment(self, node_id: str, site: RunLocation, tail: Tail | None = None) -> Segment:
        policy = self.policy or Policy()
        targets = tail.groups or tail.partitions or self.partitions if isinstance(tail, Scatter) else 1
        edge = Edge(self.estimate, self.partitions, max(1, targets), policy.exchange, policy.durability)
        put, why = choose_place(edge, site.executors[policy.executor], site)
        reason = f"blocks go to {put}: {why}"
        if self.kept:
            put, reason = "store", "blocks go to store: nothing in the workflow reads them, people may (treadle result)"
        if isinstance(tail, Discard):
            reason = "no blocks: nothing in the workflow reads its data, which its output has"
        return Segment(
            id=node_id,
            stages=tuple(self.stages),
            feed=self.feed,
            ops=tuple(self.ops),
            tail=tail or Keep(),
            policy=policy,
            data=tuple(sorted(self.data)),
            after=tuple(sorted(self.after)),
            when=self.when,
            paths=tuple(sorted(self.paths)),
            broadcasts=dict(self.broadcasts),
            partitions=self.partitions,
            put=put,
            output=self.output,
            tolerated=dict(self.tolerated),
            metrics=dict(self.metrics),
            quorum=self.quorum,
            estimate=self.estimate,
            reasons=(*self.reasons, reason),
        )


_OF_BLOCKS = {"exchange", "durability"}
"""Settings of a segment's output. The last stage's settings count, since the others have no output."""
KEYS = {
    "maximum_attempts": "retry",
    "initial_interval": "retry",
    "backoff_coefficient": "retry",
    "maximum_interval": "retry",
    "non_retryable": "retry",
    "memory_start": "memory",
    "memory_max": "memory",
    "max_concurrency": "maxConcurrency",
}
"""Fields of a Policy -> keys of a document. Other fields have the key's name."""


def why_not_fused(flow: Pipeline, policy: Policy, tolerance: Tolerance | None) -> str:
    """The reason why a stage may not join the flow. Empty: it may."""
    first = flow.policy
    if policy.gang or (first is not None and first.gang):
        return "a gang has tasks of its own"
    if first is not None and (keys := _different(first, policy)):
        return f"{' and '.join(keys)} differ{'s' * (len(keys) == 1)}"
    last = flow.tolerated.get(flow.stages[-1]) if flow.stages else None
    if first is not None and _limits(last) != _limits(tolerance):
        return "toleratedFailures differ"
    return ""


def _different(one: Policy, other: Policy) -> list[str]:
    """Keys of a document in which the policies differ."""
    mine, theirs = msgspec.to_builtins(one), msgspec.to_builtins(other)
    fields = [name for name in mine if mine[name] != theirs[name] and name not in _OF_BLOCKS]
    if "idempotent" in fields:  # it implies the single attempt
        fields = [name for name in fields if name != "maximum_attempts"]
    return list(dict.fromkeys(KEYS.get(name, name) for name in fields))


def _limits(tolerance: Tolerance | None) -> tuple[float, float]:
    return (tolerance.count, tolerance.percent) if tolerance else (-1, -1)


def by_of(stage: ShuffleStage) -> By:
    """The key of a shuffle's records."""
    if isinstance(stage.by, list):
        return By(columns=tuple(stage.by))
    return By(first=True) if stage.by == "key" else By(function=stage.by)


def nested_paths(paths: Iterable[tuple[str, ...]]) -> set[str]:
    return {".".join(path) for path in paths}
