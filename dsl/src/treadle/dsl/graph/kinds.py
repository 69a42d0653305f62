"""Which kind of partition each stage gives, as far as the document alone tells."""

from __future__ import annotations

from typing import Literal

from ..model import (
    BarrierStage,
    BroadcastStage,
    LoopStage,
    MapStage,
    ReduceStage,
    ShuffleStage,
    Source,
    WorkflowStage,
)
from .graph import Graph, InputTarget, Node, StageTarget, inputs_of

Kind = Literal["objects", "table", "array"]
KIND_WORDS: dict[Kind, str] = {"objects": "Python objects", "table": "tables", "array": "arrays"}
_SOURCES: dict[str, Kind] = {"parquet": "table", "npy": "array", "fixed": "array"}


def source_kind(source: Source) -> Kind:
    return "table" if source.table else _SOURCES.get(source.format, "objects")


def output_kind(graph: Graph, node: Node) -> Kind | None:
    """The kind a stage gives; None when only its function, a state or a given dataset decides."""
    return _output(graph, node, frozenset())


def input_kind(graph: Graph, node: Node) -> Kind | None:
    """The kind a stage reads; None when unknown, or when several inputs differ."""
    return _input(graph, node, frozenset())


def _output(graph: Graph, node: Node, seen: frozenset[str]) -> Kind | None:
    match node.stage:
        case MapStage(per="record") | ReduceStage():
            return "objects"
        case ShuffleStage() | BarrierStage():
            return _input(graph, node, seen | {node.id})
        case MapStage() | BroadcastStage() | LoopStage() | WorkflowStage():
            return None


def _input(graph: Graph, node: Node, seen: frozenset[str]) -> Kind | None:
    kinds = {_one(graph, node, item, seen) for _, item in inputs_of(node.stage)}
    return kinds.pop() if len(kinds) == 1 else None


def _one(graph: Graph, node: Node, item: object, seen: frozenset[str]) -> Kind | None:
    if isinstance(item, Source):
        return source_kind(item)
    if not isinstance(item, str):
        return "objects"
    target = graph.find(item, node.loops)
    if isinstance(target, InputTarget):
        return "objects" if target.input.type == "list" else None
    if isinstance(target, StageTarget) and target.node.id not in seen:
        return _output(graph, target.node, seen)
    return None


def grouped_by(graph: Graph, node: Node) -> ShuffleStage | None:
    """The shuffle whose partitions a stage reads, directly or through barriers."""
    seen: set[str] = set()
    while node.id not in seen and not isinstance(node.stage, (LoopStage, ShuffleStage, WorkflowStage)):
        seen.add(node.id)
        target = graph.find(node.stage.input, node.loops)
        if not isinstance(target, StageTarget):
            return None
        node = target.node
        if isinstance(node.stage, ShuffleStage):
            return node.stage
        if not isinstance(node.stage, BarrierStage):
            return None
    return None
