"""Which kind of partition each stage gives, and whether it is one record, as far as the document alone tells."""

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
from .graph import Graph, InputTarget, Node, StageTarget, StateTarget, bare, inputs_of

Kind = Literal["objects", "table", "array"]
KIND_WORDS: dict[Kind, str] = {"objects": "Python objects", "table": "tables", "array": "arrays"}
_SOURCES: dict[str, Kind] = {"parquet": "table", "npy": "array", "fixed": "array"}


def source_kind(source: Source) -> Kind:
    return "table" if source.table else _SOURCES.get(source.format, "objects")


def output_kind(graph: Graph, node: Node, seen: frozenset[str] = frozenset()) -> Kind | None:
    """The kind a stage gives; None when only its function, a state or a given dataset decides.

    `seen`: stages whose kind is asked for already.
    """
    match node.stage:
        case MapStage(per="record") | ReduceStage():
            return "objects"
        case ShuffleStage() | BarrierStage():
            return input_kind(graph, node, seen | {node.id})
        case MapStage() | BroadcastStage() | LoopStage() | WorkflowStage():
            return None


def input_kind(graph: Graph, node: Node, seen: frozenset[str] = frozenset()) -> Kind | None:
    """The kind a stage reads; None when unknown, or when several inputs differ."""
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
        return output_kind(graph, target.node, seen)
    return None


def grouped_by(graph: Graph, reference: object, loops: tuple[str, ...]) -> tuple[str, ShuffleStage] | None:
    """The shuffle whose partitions are named so inside `loops`, directly or through barriers; None: there is none."""
    seen: set[str] = set()
    while isinstance(target := graph.find(reference, loops), StageTarget):
        node = target.node
        if isinstance(node.stage, ShuffleStage):
            return node.id, node.stage
        if not isinstance(node.stage, BarrierStage) or node.id in seen:
            return None
        seen.add(node.id)
        reference, loops = node.stage.input, node.loops
    return None


def is_single(
    graph: Graph, reference: str, loops: tuple[str, ...], asked: frozenset[tuple[str, str]] = frozenset()
) -> bool:
    """Whether what is named so inside `loops` is the one record of a `per: all` reduce, also through barriers, and as a
    state that begins so and stays so. Raises ReferenceProblem.
    """
    match graph.resolve(reference, loops):
        case StageTarget(Node(stage=ReduceStage(per="all"))):
            return True
        case StageTarget(Node(stage=BarrierStage(input=source), loops=around)):
            return is_single(graph, source, around, asked)
        case StateTarget(loop, name):
            return (loop.id, name) in asked or _is_single_state(graph, loop, name, asked | {(loop.id, name)})
    return False


def _is_single_state(graph: Graph, loop: Node, name: str, asked: frozenset[tuple[str, str]]) -> bool:
    assert isinstance(loop.stage, LoopStage)
    first, following = dict(bare(loop.stage.state)), dict(bare(loop.stage.next))
    if name not in first or not is_single(graph, first[name], loop.loops, asked):
        return False
    return name not in following or is_single(graph, following[name], (*loop.loops, loop.id), asked)
