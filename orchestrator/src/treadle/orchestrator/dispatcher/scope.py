"""From the plan's nodes to what exists: concrete segment ids, datasets, and the input of every partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.executors.program import BlockInput, ItemSplit, PartitionInput, RangeSplit
from treadle.primitives.errors import InternalError
from treadle.primitives.partitioning import split_evenly
from treadle.primitives.references import BlockRef, Slice

from ..plan import (
    AllFeed,
    DataRef,
    Feed,
    FilesFeed,
    Graph,
    GroupFeed,
    ItemsFeed,
    Loop,
    LoopData,
    NarrowFeed,
    NodeData,
    RangeFeed,
    StateData,
)
from ..runfiles import LoopResult, Manifest
from ..scheduler import Data

FindManifest = Callable[[str], Manifest]
FindLoop = Callable[[str], LoopResult]


def loop_chains(graph: Graph, chain: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """node id -> the loops around it, outermost first."""
    found = {node.id: chain for node in graph.nodes}
    for node in graph.nodes:
        if isinstance(node, Loop):
            found |= loop_chains(node.body, (*chain, node.id))
    return found


@dataclass(frozen=True)
class Scope:
    """Where in the loops we are, and what a node's references mean there."""

    chains: Mapping[str, tuple[str, ...]]
    iterations: Mapping[str, int] = field(default_factory=dict)
    """loop -> iteration, for the loops around us."""
    states: Mapping[str, Data] = field(default_factory=dict)
    """Dataset states of the loops around us; an inner loop's hide an outer one's of the same name."""
    scalars: Mapping[str, Any] = field(default_factory=dict)
    """Scalar states, likewise."""

    def segment(self, node: str) -> str:
        """The concrete segment id: `lloyd-3/assign`."""
        return self.prefix(self.chains[node]) + node

    def prefix(self, chain: Sequence[str]) -> str:
        return "".join(f"{loop}-{self.iterations[loop]}/" for loop in chain)

    def data(self, ref: DataRef, find_loop: FindLoop) -> Data:
        match ref:
            case NodeData(nodes, form):
                return Data(tuple(self.segment(node) for node in nodes), form)
            case StateData(name):
                return self.states[name]
            case LoopData(loop, name):
                return find_loop(self.segment(loop)).data[name]
        raise InternalError(f"unknown reference {ref!r}")


def partition_inputs(data: Data, find: FindManifest) -> list[BlockInput]:
    """The input of each partition of a dataset."""
    manifests = [find(segment) for segment in data.segments]
    if data.form == "scattered":
        return _gather(manifests)
    rows = [_parts(outcome.block) for manifest in manifests for outcome in manifest.outcomes]
    return [BlockInput((one,)) for row in rows for one in row]


def _parts(block: BlockRef | None) -> list[tuple[Slice, ...]]:
    """One row of slices for each part; a partition that left no block is empty."""
    return [()] if block is None else [(block.slice(part),) for part in range(len(block.parts))]


def _gather(manifests: Sequence[Manifest]) -> list[BlockInput]:
    blocks = [[outcome.block for outcome in manifest.outcomes if outcome.block] for manifest in manifests]
    targets = len(next((block.parts for row in blocks for block in row), ()))
    return [
        BlockInput(tuple(tuple(block.slice(target) for block in row) for row in blocks), pieces=True)
        for target in range(targets)
    ]


def feed_inputs(feed: Feed, scope: Scope, find: FindManifest, find_loop: FindLoop) -> Sequence[PartitionInput]:
    """The input of each partition of a segment, in order: a function of the plan and of committed data only."""
    match feed:
        case FilesFeed(splits):
            return splits
        case ItemsFeed(items, bounds):
            return [ItemSplit(items[start:stop]) for start, stop in bounds]
        case RangeFeed(count, partitions, cut):
            return [RangeSplit(*run) for run in cut_runs(split_evenly(count, partitions), cut)]
        case NarrowFeed(data):
            return partition_inputs(scope.data(data, find_loop), find)
        case AllFeed(data):
            return [BlockInput((tuple(_slices(partition_inputs(scope.data(data, find_loop), find))),))]
        case GroupFeed(data, fan_in):
            present = [one for one in _slices(partition_inputs(scope.data(data, find_loop), find)) if one.part.rows]
            groups = [tuple(present[start : start + fan_in]) for start in range(0, len(present), fan_in)]
            return [BlockInput((group,)) for group in groups or [()]]
    raise InternalError(f"unknown feed {feed!r}")


def cut_runs(runs: Sequence[tuple[int, int]], longest: int) -> list[tuple[int, int]]:
    """Each run cut into runs of at most `longest`; an empty run stays; 0: as they are."""
    if not longest:
        return list(runs)
    return [
        (start, min(start + longest, stop))
        for first, stop in runs
        for start in (range(first, stop, longest) if stop > first else (first,))
    ]


def _slices(inputs: Sequence[BlockInput]) -> list[Slice]:
    return [one for partition in inputs for row in partition.inputs for one in row]
