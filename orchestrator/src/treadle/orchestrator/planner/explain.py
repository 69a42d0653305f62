"""A plan for display: each segment with its operations, the place of its data, and the reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from treadle.executors.program import (
    By,
    Cut,
    Cuts,
    Discard,
    MapPartition,
    MapRecords,
    Merge,
    ObjectState,
    Op,
    Reduce,
    Sample,
    Scatter,
    Sort,
    Tail,
    ToBroadcast,
)
from treadle.primitives.errors import InternalError
from treadle.primitives.functions import CAPTURED

from ..plan.plan import (
    AllFeed,
    BarrierNode,
    BundleFeed,
    Child,
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
    Node,
    NodeData,
    NodeKind,
    Plan,
    RangeFeed,
    Segment,
)


class NodeExplanation(Struct, frozen=True, rename="camel"):
    """One node of the plan in words."""

    node: str
    kind: NodeKind
    stages: tuple[str, ...]
    """Stages that run in the node, fused if there are several."""
    depth: int
    """The number of loops and workflows around the node."""
    reads: str
    does: tuple[str, ...]
    partitions: int
    """0: known with the input."""
    place: str
    """The place of blocks larger than a few KiB: `host`, `store`, or empty when there are none."""
    estimate: int
    """A guess of the bytes of output."""
    writes: str
    """URI, or empty."""
    after: tuple[str, ...]
    """Nodes that it waits for."""
    when: str
    executor: str
    reasons: tuple[str, ...]


def explain(plan: Plan) -> list[NodeExplanation]:
    """Every node in order. A loop's body follows the loop; the nodes of a sub-workflow (`load/count`) follow its
    stage."""
    return list(_views(plan.graph, 0))


def as_json(plan: Plan) -> dict[str, Any]:
    """The explanation for programs. The keys are stable."""
    return {"nodes": msgspec.to_builtins(explain(plan)), "inexact": list(plan.inexact), "outputs": plan.outputs}


def mermaid(plan: Plan) -> str:
    """A flowchart in Mermaid's language. Its ids are numbers, since words such as `end` are keywords there."""
    views = explain(plan)
    ids = {view.node: f"n{number}" for number, view in enumerate(views, 1)}
    lines = [f'  {ids[view.node]}["{_caption(view, "<br/>")}"]' for view in views]
    lines += [f"  {ids[source]} --> {ids[target]}" for source, target in _edges(plan.graph)]
    return "\n".join(["flowchart TD", *lines]) + "\n"


def dot(plan: Plan) -> str:
    """A graph in Graphviz's language."""
    lines = [f'  "{view.node}" [label="{_caption(view, chr(92) + "n")}"]' for view in explain(plan)]
    lines += [f'  "{source}" -> "{target}"' for source, target in _edges(plan.graph)]
    return "\n".join(["digraph plan {", "  node [shape=box]", *lines, "}"]) + "\n"


# -- nodes ----------


def _views(graph: Graph, depth: int) -> Iterator[NodeExplanation]:
    for node in graph.nodes:
        yield _view(node, depth)
        if isinstance(node, LoopNode):
            yield from _views(node.body, depth + 1)
        elif isinstance(node, Child) and node.graph is not None:
            yield from (_below(node.id, view) for view in _views(node.graph, depth + 1))


def _below(child: str, view: NodeExplanation) -> NodeExplanation:
    after = tuple(f"{child}/{need}" for need in view.after)
    return msgspec.structs.replace(view, node=f"{child}/{view.node}", after=after)


def _view(node: Node, depth: int) -> NodeExplanation:
    after = tuple(sorted({*node.data, *node.after}))
    if isinstance(node, Segment):
        return NodeExplanation(
            node.id,
            node.kind,
            node.stages,
            depth,
            _reads(node.feed),
            (*map(_op, node.ops), *_tail(node.tail)),
            node.partitions,
            "" if isinstance(node.tail, Discard) else node.put,
            node.estimate,
            node.output.part.uri if node.output else "",
            after,
            node.when,
            node.policy.executor,
            node.reasons,
        )
    does = (_does(node),)
    return NodeExplanation(
        node.id, node.kind, node.stages, depth, "", does, 0, "", 0, "", after, node.when, "", node.reasons
    )


def _does(node: BarrierNode | LoopNode | Child) -> str:
    match node:
        case LoopNode():
            until = f" until {node.until}" if node.until else ""
            return f"repeat{until}, at most {node.max_iterations} times"
        case Child():
            return f"run the workflow {node.workflow}"
    return node.does


def _reads(feed: Feed) -> str:
    match feed:
        case FilesFeed(splits):
            count = len({split.uri for split in splits})
            return f"{count} file{'s' * (count != 1)}"
        case ItemsFeed(items):
            return f"{len(items)} item{'s' * (len(items) != 1)}"
        case RangeFeed(count):
            return f"range of {count}"
        case EventsFeed(split, bounds):
            return f"{sum(stop - start for start, stop in bounds)} events of {split.topic}"
        case NarrowFeed(data):
            return _data(data)
        case AllFeed(data):
            return f"all of {_data(data)}"
        case GroupFeed(data, fan_in):
            return f"{_data(data)}, {fan_in} at a time"
        case BundleFeed(data, run):
            return f"bundles of {_data(data)}, {run} at a time"
        case EffectsFeed(data):
            return f"calls made by {_data(data)}"
    raise InternalError(f"unknown feed {feed!r}")


def _data(ref: DataRef) -> str:
    match ref:
        case NodeData(nodes):
            return ", ".join(nodes)
        case LoopData(loop, name):
            return f"{loop}.state.{name}"
    return f"state.{ref.name}"


def _op(op: Op) -> str:
    match op:
        case MapRecords():
            return f"{op.stage}: {_function(op.call.function)} for each record"
        case MapPartition():
            return f"{op.stage}: {_function(op.call.function)} for each partition"
        case Sort():
            return f"{op.stage}: sort by {_by(op.by)}"
        case Reduce():
            function = _function(op.uses.function if op.uses else op.combine)
            finish = f", then {_function(op.finish.function)}" if op.finish else ""
            return f"{op.stage}: {function} per {op.per}{finish}"
        case ToBroadcast():
            return f"{op.stage}: make one value for every reader"
        case Sample():
            return f"{op.stage}: sample {_by(op.by)}"
        case Cuts():
            return f"{op.stage}: choose range boundaries"
        case ObjectState():
            does = f"apply the calls of {op.source}" if op.source else "report the value"
            return f"{op.stage}: {'make the first state' if op.create else does}"
    raise InternalError(f"unknown operation {op!r}")


def _by(by: By) -> str:
    return "key" if by.first else _function(by.function) or ", ".join(by.columns)


def _function(reference: str) -> str:
    """The name of a function. A function without a name, such as a lambda, shows a part of its digest."""
    digest = reference.removeprefix(CAPTURED)
    return reference if digest == reference else f"function {digest[:8]}"


def _tail(tail: Tail) -> tuple[str, ...]:
    match tail:
        case Scatter():
            how = "range" if tail.boundaries is not None else "hash"
            plural = "s" * (tail.partitions != 1)
            count = f"{tail.partitions} partition{plural}" if tail.partitions else "as many partitions as its input has"
            combine = f", combine {_function(tail.combine)}" if tail.combine else ""
            bundles = f", in {tail.groups} bundles" if tail.groups else ""
            return (f"{tail.stage}: scatter by {_by(tail.by)} to {count}{bundles} ({how}{combine})",)
        case Merge():
            return (f"{tail.stage}: join the bundles of several sources, a part for each partition",)
        case Cut():
            limits = [
                f"{tail.max_items} records" if tail.max_items else "",
                f"{tail.max_bytes} bytes" if tail.max_bytes else "",
            ]
            return (f"cut into chunks of at most {' and '.join(filter(None, limits))}",)
    return ()


# -- graphs ----------


def _edges(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the edges of the graph and of its sub-workflows."""
    yield from graph.edges()
    for node in graph.walk():
        if isinstance(node, Child) and node.graph is not None:
            yield from ((node.id, f"{node.id}/{first}") for first in node.graph.first())
            yield from ((f"{node.id}/{source}", f"{node.id}/{target}") for source, target in _edges(node.graph))


def _caption(view: NodeExplanation, newline: str) -> str:
    count = f"{view.partitions} partition{'s' * (view.partitions != 1)}" if view.partitions else view.kind
    return newline.join([", ".join(view.stages) or view.node, count]).replace('"', "'")
