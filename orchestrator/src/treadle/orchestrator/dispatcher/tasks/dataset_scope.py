"""Maps the plan's nodes to existing data: concrete segment ids, datasets, and the input of every partition."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar, overload

import msgspec

from treadle.executors.program import BlockInput, EventSplit, ItemSplit, PartitionInput, RangeSplit
from treadle.primitives.encoding.references import BlockRef, Slice
from treadle.primitives.errors import InternalError
from treadle.primitives.events import offset_ranges

from ...plan.plan import (
    AllFeed,
    BundleFeed,
    CallsFeed,
    DataRef,
    EffectsFeed,
    EventsFeed,
    Feed,
    FilesFeed,
    Graph,
    GroupFeed,
    ItemsFeed,
    LoopData,
    LoopNode,
    NarrowFeed,
    NodeData,
    RangeFeed,
    Segment,
    StateData,
)
from ...run_store.run_files import LoopResult, Manifest
from ...scheduler.instructions import Data

T = TypeVar("T", bound=PartitionInput, covariant=True)
FindManifest = Callable[[str], Manifest]
FindLoop = Callable[[str], LoopResult]


def loop_chains(graph: Graph, chain: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Node id -> its enclosing loops, outermost first."""
    found = {node.id: chain for node in graph.nodes}
    for node in graph.nodes:
        if isinstance(node, LoopNode):
            found |= loop_chains(node.body, (*chain, node.id))
    return found


@dataclass(frozen=True)
class Scope:
    """A position within the loops. It resolves the references of the nodes there."""

    chains: Mapping[str, tuple[str, ...]]
    iterations: Mapping[str, int] = field(default_factory=dict)
    """Loop -> iteration, for the enclosing loops."""
    states: Mapping[str, Data] = field(default_factory=dict)
    """Dataset states of the enclosing loops. A state of an inner loop hides an outer one of the same name."""
    scalars: Mapping[str, Any] = field(default_factory=dict)
    """Scalar states of the enclosing loops, with the same rule."""

    def segment(self, node: str) -> str:
        """The concrete segment id: `lloyd-3/assign`."""
        return "".join(f"{loop}-{self.iterations[loop]}/" for loop in self.chains[node]) + node

    def data(self, ref: DataRef, find_loop: FindLoop) -> Data:
        match ref:
            case NodeData(nodes, form, groups):
                return Data(tuple(self.segment(node) for node in nodes), form, groups)
            case StateData(name):
                return self.states[name]
            case LoopData(loop, name):
                return find_loop(self.segment(loop)).data[name]
        raise InternalError(f"unknown reference {ref!r}")


def partition_inputs(data: Data, find: FindManifest) -> Sequence[BlockInput]:
    """The input of each partition of a dataset."""
    manifests = [find(segment) for segment in data.segments]
    if data.form == "scattered":
        return Gathered([_blocks(manifest) for manifest in manifests], data.groups)
    return _parts([outcome.block for manifest in manifests for outcome in manifest.outcomes])


def _parts(blocks: Sequence[BlockRef | None]) -> Sequence[BlockInput]:
    """A partition for each part of each block. A missing block gives an empty partition."""
    stops = list(accumulate(len(block.parts) if block else 1 for block in blocks))

    def make(index: int) -> BlockInput:
        owner = bisect_right(stops, index)
        block = blocks[owner]
        return BlockInput(((block.slice(index - stops[owner] + len(block.parts)),) if block else (),))

    return Inputs(stops[-1] if stops else 0, make)


def _blocks(manifest: Manifest) -> list[BlockRef]:
    return [outcome.block for outcome in manifest.outcomes if outcome.block]


class Inputs(Sequence[T]):
    """The input of each partition, made on access, since a task group of a wide segment needs only its own."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._make(one) for one in range(*index.indices(self._count))]
        return self._make(range(self._count)[index])


class Gathered(Inputs[BlockInput]):
    """The input of each target of a shuffle, made on access: all targets together have sources x targets slices.

    Each input's blocks form `groups` equal runs. The g-th run holds the g-th group of consecutive targets.
    """

    def __init__(self, inputs: Sequence[Sequence[BlockRef]], groups: int = 1) -> None:
        self._inputs = [_split(blocks, groups) for blocks in inputs]
        present = next((runs for runs in self._inputs if runs[0]), [])
        self._stops = list(accumulate(len(run[0].parts) for run in present))
        """The end of each group of targets."""
        super().__init__(self._stops[-1] if self._stops else 0, self._target)

    def _target(self, target: int) -> BlockInput:
        group = bisect_right(self._stops, target)
        part = target - (self._stops[group - 1] if group else 0)
        return BlockInput(
            tuple(tuple(block.slice(part) for block in runs[group]) for runs in self._inputs), pieces=True
        )


def _split(blocks: Sequence[BlockRef], groups: int) -> list[Sequence[BlockRef]]:
    size, rest = divmod(len(blocks), groups)
    if rest:
        raise InternalError(f"{len(blocks)} blocks are no {groups} groups")
    return [blocks[group * size : (group + 1) * size] for group in range(groups)]


def _effects(manifest: Manifest) -> tuple[Slice, ...]:
    return tuple(outcome.effects.slice(0) for outcome in manifest.outcomes if outcome.effects)


def bundle_inputs(blocks: Sequence[BlockRef], run: int) -> list[BlockInput]:
    """The inputs of a shuffle's second level: for each group and each run of `run` blocks, the bundles of one
    partition."""
    groups = len(blocks[0].parts) if blocks else 0
    runs = [blocks[start : start + run] for start in range(0, len(blocks), run)]
    return [
        BlockInput((tuple(block.slice(group) for block in some),), pieces=True)
        for group in range(groups)
        for some in runs
    ]


def nodes_read(segment: Segment, skipped: Collection[str]) -> tuple[str, ...]:
    """The nodes whose manifests the segment reads."""
    feed = segment.feed
    effects = feed.data.nodes if isinstance(feed, EffectsFeed) and feed.stage not in skipped else ()
    return (*segment.data, *effects)


def feed_inputs(
    feed: Feed, scope: Scope, find: FindManifest, find_loop: FindLoop, skipped: Collection[str] = ()
) -> Sequence[PartitionInput]:
    """The input of each partition of a segment, in order. It depends only on the plan and on committed data.

    `skipped`: skipped stages, of the stages for which it waits.
    """
    match feed:
        case EffectsFeed(data, stage):
            return [BlockInput((() if stage in skipped else _effects(find(scope.segment(data.nodes[0]))),))]
        case FilesFeed(splits):
            return splits
        case ItemsFeed(items, bounds):
            return Inputs(len(bounds), lambda index: ItemSplit(items[slice(*bounds[index])]))
        case RangeFeed(count, partitions, cut):
            return range_inputs(count, partitions, cut)
        case EventsFeed(split, bounds):
            return Inputs(len(bounds), lambda index: _piece(split, *bounds[index]))
        case NarrowFeed(data):
            return partition_inputs(scope.data(data, find_loop), find)
        case AllFeed(data):
            return [BlockInput((tuple(_slices(partition_inputs(scope.data(data, find_loop), find))),))]
        case GroupFeed(data, fan_in):
            present = [one for one in _slices(partition_inputs(scope.data(data, find_loop), find)) if one.part.rows]
            groups = [tuple(present[start : start + fan_in]) for start in range(0, len(present), fan_in)]
            return [BlockInput((group,)) for group in groups or [()]]
        case BundleFeed(data, run):
            (manifest,) = (find(segment) for segment in scope.data(data, find_loop).segments)
            return bundle_inputs(_blocks(manifest), run)
        case CallsFeed():
            return []
    raise InternalError(f"unknown feed {feed!r}")


def _piece(split: EventSplit, first: int, stop: int) -> EventSplit:
    start, runs = offset_ranges.piece(split.start, split.runs, first, stop)
    return msgspec.structs.replace(split, start=start, runs=runs)


def range_inputs(count: int, partitions: int, longest: int) -> Sequence[RangeSplit]:
    """The splits that the planner's `cut_runs` makes of an evenly split range, computed without listing every run."""
    size, larger = divmod(count, partitions)
    many, few = (max(1, -(-length // longest)) if longest else 1 for length in (size + 1, size))
    """Pieces of a run of length size + 1, and of a run of length size."""

    def make(index: int) -> RangeSplit:
        late = index - larger * many
        run, piece = divmod(index, many) if late < 0 else divmod(late, few)
        first, length = (run * (size + 1), size + 1) if late < 0 else (larger + (larger + run) * size, size)
        start, stop = first + piece * longest, first + length
        return RangeSplit(start, min(start + longest, stop) if longest else stop)

    return Inputs(larger * many + (partitions - larger) * few, make)


def _slices(inputs: Sequence[BlockInput]) -> list[Slice]:
    return [one for partition in inputs for row in partition.inputs for one in row]


def slices_of(source: PartitionInput) -> list[Slice]:
    """The blocks that a partition reads, in order."""
    return _slices([source]) if isinstance(source, BlockInput) else []
