"""Placement: refuses stages that an executor cannot run, and puts blocks where all readers can reach them."""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set

import msgspec

from treadle.dsl.units import format_duration, format_size
from treadle.executors.interface import Capabilities
from treadle.executors.program import Discard, ToBroadcast
from treadle.executors.resident import MEMBERS
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.input_files import is_local

from ..plan.plan import Child, EventsFeed, FilesFeed, Graph, ItemsFeed, LoopNode, Node, Policy, Segment
from . import residency
from .transport import SEALED, RunLocation, crowding


class PlacementRefused(UsageError):
    """An executor cannot meet a stage's requirements. The author must change the stage or choose another executor."""

    def __init__(self, message: str, hint: str, *paths: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.paths = paths
        """Paths to the cause in the document. The first one that the document has counts."""


# -- one stage ----------


def check_place(site: RunLocation, policy: Policy, own: tuple[str, ...]) -> None:
    """Raises PlacementRefused if the executor of the stage cannot meet its settings. `own`: the path of the stage in
    the document."""
    can = site.executors.get(policy.executor)
    name = own[-1]

    def refuse(key: str, message: str, hint: str) -> PlacementRefused:
        return PlacementRefused(f"{name}: {message}", hint, (*own, key), ("defaults", key), own)

    if can is None:
        known = ", ".join(site.executors)
        raise refuse("executor", f"there is no executor {policy.executor!r} here", f"The profile has: {known}.")
    if 0 < can.time_limit < policy.timeout:
        asked, most = format_duration(policy.timeout), format_duration(can.time_limit)
        hint = f"Cut the work into more partitions, give at most `timeout: {most}`, or run the stage elsewhere."
        raise refuse("timeout", f"an attempt on {policy.executor} ends after {most}, and `timeout` is {asked}", hint)
    if 0 < can.memory_limit < policy.memory_start:
        asked, most = format_size(policy.memory_start), format_size(can.memory_limit)
        hint = "Cut the work into more partitions, or run the stage on an executor with more memory."
        raise refuse("memory", f"an attempt on {policy.executor} has at most {most}, and `memory` is {asked}", hint)


def within(policy: Policy, can: Capabilities | None) -> Policy:
    """The policy with its maximum of memory limited by the executor."""
    if can is None or not 0 < can.memory_limit < policy.memory_max:
        return policy
    return msgspec.structs.replace(policy, memory_max=max(policy.memory_start, can.memory_limit))


def check_code(executors: Mapping[str, Capabilities], bundle: bytes) -> None:
    """Raises UsageError if a run's code does not fit into the temporary folder of an executor that it uses."""
    bounds = {name: can.temporary for name, can in executors.items() if can.temporary}
    if not bundle or not bounds:
        return
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        files = sorted(archive.infolist(), key=lambda info: -info.file_size)
    size = sum(info.file_size for info in files)
    for name, bound in bounds.items():
        if size > bound:
            largest = ", ".join(f"{info.filename} ({info.file_size:,} bytes)" for info in files[:3])
            text = f"the modules of the project are {size:,} bytes; {name} has a temporary folder of {bound:,}"
            raise UsageError(text, f"Keep data out of the project's folder; the largest: {largest}.")


# -- the whole graph ----------


def settle(
    graph: Graph, site: RunLocation, around: frozenset[str] = frozenset(), held: Set[str] = frozenset()
) -> Graph:
    """The graph with its blocks and executors decided.

    Blocks go to the store if an executor reads them that does not share the host's memory. Resident functions replace
    calls where that is better.

    `around`: for the body of a loop, the executors that may read any of its data. `held`: the outer nodes whose blocks
    stay with members. Raises PlacementRefused.
    """
    reads: dict[str, set[str]] = defaultdict(set)
    for node in reversed(graph.nodes):
        who = {*_readers(node, site), *(reads[node.id] if isinstance(node, LoopNode) else ())}
        for need in node.data:
            reads[need] |= who
    nodes: list[Node] = []
    known = set(held)
    for node in graph.nodes:
        nodes.append(_settled(node, around | reads[node.id], known, site))
        if _holds(nodes[-1], known):
            known.add(node.id)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def crowded(graph: Graph, site: RunLocation) -> Graph:
    """The graph, with a note at each segment in shared memory if the blocks of all stages exceed it."""
    here = [node for node in graph.walk() if isinstance(node, Segment) and _is_in_memory(node, site)]
    words = crowding(sum(segment.estimate for segment in here), site)
    return _told(graph, {segment.id for segment in here}, words) if words else graph


def _is_in_memory(segment: Segment, site: RunLocation) -> bool:
    """Returns whether the segment's blocks go to this host's memory and stay there until the run is over."""
    shared = segment.put == "host" and site.executors[segment.policy.executor].shares_host
    return shared and not isinstance(segment.tail, Discard)


def _told(graph: Graph, names: Collection[str], words: str) -> Graph:
    def one(node: Node) -> Node:
        if isinstance(node, LoopNode):
            return msgspec.structs.replace(node, body=_told(node.body, names, words))
        if not isinstance(node, Segment) or node.id not in names:
            return node
        return msgspec.structs.replace(node, reasons=(*node.reasons[:-1], node.reasons[-1] + words))

    return msgspec.structs.replace(graph, nodes=tuple(map(one, graph.nodes)))


def _holds(node: Node, held: Set[str]) -> bool:
    """Returns whether the node's blocks stay with members. A loop's may, since its last state can be its first."""
    if isinstance(node, LoopNode):
        return not held.isdisjoint(node.data) or any(_holds(inner, held) for inner in node.body.nodes)
    return isinstance(node, Segment) and node.put == "host" and node.policy.executor.endswith(MEMBERS)


def executors_of(graph: Graph) -> frozenset[str]:
    """Names of all executors that a graph uses, its sub-workflows included."""
    nodes = list(graph.walk())
    below = (executors_of(node.graph) for node in nodes if isinstance(node, Child) and node.graph is not None)
    return frozenset(node.policy.executor for node in nodes if isinstance(node, Segment)).union(*below)


def _readers(node: Node, site: RunLocation) -> frozenset[str]:
    """The executors that read the node's input. For functions that may be resident, the name of the resident ones."""
    if isinstance(node, LoopNode):
        return frozenset(name for inner in node.body.nodes for name in _readers(inner, site))
    return frozenset({residency.reader(node, site)}) if isinstance(node, Segment) else frozenset()


def _settled(node: Node, readers: frozenset[str], held: Set[str], site: RunLocation) -> Node:
    if isinstance(node, LoopNode):
        body = settle(node.body, site, readers | _readers(node, site), held | {residency.STATE})
        return msgspec.structs.replace(node, body=body)
    if not isinstance(node, Segment):
        return node
    can = site.executors[node.policy.executor]
    for refusal in _refusals(node, can, site):
        raise refusal
    strangers = sorted({name.removesuffix(MEMBERS) for name in readers if not site.executors[name].shares_host})
    if not can.shares_host:
        return _stays_or_calls(node, readers, held, site)
    if node.put == "store" or not strangers:
        return node
    reason = f"blocks go to store: {' and '.join(strangers)} read{'s' * (len(strangers) == 1)} them too"
    return msgspec.structs.replace(node, put="store", reasons=(*node.reasons[:-1], reason))


def _stays_or_calls(segment: Segment, readers: frozenset[str], held: Set[str], site: RunLocation) -> Segment:
    found = residency.choose(segment, readers, held, site)
    if found.refused:
        hint = (
            "Give its table `members` with a coordinator that functions reach (docs/members.md), or leave `exchange`."
        )
        last = segment.stages[-1] if segment.stages else _first(segment)  # the stage whose blocks they are
        raise _at(segment, "exchange", f"{last}: exchange: direct cannot be: {found.refused}", hint, last)
    return found.segment


def _refusals(segment: Segment, can: Capabilities, site: RunLocation) -> Iterator[PlacementRefused]:
    stage, where = _first(segment), segment.policy.executor
    if not can.files:
        yield from _unreachable_files(segment, stage, where, site)
    yield from _missing_libraries(segment, can)
    limit = can.payload_limit / SEALED
    if limit and isinstance(segment.feed, ItemsFeed):
        items, bounds = segment.feed.items, segment.feed.bounds
        largest = max((len(msgspec.msgpack.encode(items[start:stop])) for start, stop in bounds), default=0)
        if largest > limit:
            text = f"{stage}: {largest:,} bytes of items in one partition; a payload of {where} holds {int(limit):,}"
            yield _at(segment, "input", text, "Write more `partitions`, or keep the items in a file.")
    for op in segment.ops:
        if isinstance(op, ToBroadcast) and 0 < can.memory_limit < op.limit:
            sizes = f"may be {format_size(op.limit)}, and an attempt on {where} has {format_size(can.memory_limit)}"
            yield _at(segment, "limit", f"{op.stage}: its value {sizes}", "Give a smaller `limit`.")


def _missing_libraries(segment: Segment, can: Capabilities) -> Iterator[PlacementRefused]:
    """Refusals for libraries that the package of a function lacks."""
    stage, where, feed = _first(segment), segment.policy.executor, segment.feed
    again = f"Write it into the table `deploy` of {where}, and deploy again."
    if "confluent_kafka" in can.lacks and isinstance(feed, EventsFeed) and not feed.split.copied:
        text = f"{stage}: functions of {where} read events from Kafka only when they are deployed with `kafka = true`"
        yield _at(segment, "input", text, f"{again} Or read them in a stage of its own, `executor: local`.")
    if "pyarrow" not in can.lacks:
        return
    text = "functions of {} have {} only when they are deployed with `arrow = true`"
    if isinstance(feed, FilesFeed) and any(split.options.format == "parquet" for split in feed.splits):
        yield _at(segment, "input", f"{stage}: {text.format(where, 'Parquet')}", again)
    if isinstance(feed, FilesFeed) and any(split.options.table for split in feed.splits):
        yield _at(segment, "input", f"{stage}: {text.format(where, 'text as tables')}", again)
    output, last = segment.output, segment.stages[-1]
    if output is not None and output.part.options.format == "parquet":
        yield _at(segment, "output", f"{last}: {text.format(where, 'Parquet')}", again, last)


def _unreachable_files(segment: Segment, stage: str, where: str, site: RunLocation) -> Iterator[PlacementRefused]:
    hint = f"{where} cannot reach the files of this machine: use s3://, gs:// or az://."
    if is_local(site.store) or site.store.startswith("memory://"):
        text = f"{stage}: it runs on {where}, and the store is {site.store}"
        yield _at(segment, "executor", text, f"{hint} The store is set in the profile, or by TREADLE_STORE.")
    feed, output = segment.feed, segment.output
    uri = next((split.uri for split in feed.splits), "") if isinstance(feed, FilesFeed) else ""
    if uri and is_local(uri):
        yield _at(segment, "input", f"{stage}: it runs on {where} and reads {uri}", hint)
    if output is not None and is_local(output.part.uri):
        text = f"{segment.stages[-1]}: it runs on {where} and writes to {output.part.uri}"
        yield _at(segment, "output", text, hint, segment.stages[-1])


def _first(segment: Segment) -> str:
    return segment.stages[0] if segment.stages else segment.id.partition(".")[0]


def _at(segment: Segment, key: str, text: str, hint: str, stage: str = "") -> PlacementRefused:
    own = ("stages", stage or _first(segment))
    return PlacementRefused(text, hint, (*own, key), own)
