"""The kind of partition that each stage gives, and whether it is a single record, as far as the document shows."""

from __future__ import annotations

from typing import Literal

from ..model import (
    BarrierStage,
    LoopStage,
    MapStage,
    ReduceStage,
    ShuffleStage,
    Source,
)
from .graph import InputTarget, Node, StageGraph, StageTarget, StateTarget, Target, bare, inputs_of
from .requirements import needs_first

Kind = Literal["objects", "table", "array"]
KIND_WORDS: dict[Kind, str] = {"objects": "Python objects", "table": "tables", "array": "arrays"}
_PASSING = (ShuffleStage, BarrierStage)
"""Stages that give the same kind that they read."""
_SOURCES: dict[str, Kind] = {"parquet": "table", "npy": "array", "fixed": "array"}


def source_kind(source: Source) -> Kind:
    return "table" if source.table else _SOURCES.get(source.format, "objects")


class Kinds:
    """The kinds that each stage reads and gives."""

    def __init__(self, graph: StageGraph) -> None:
        self._graph = graph
        self._given: dict[str, Kind | None] = {}
        passing = {name: node for name, node in graph.nodes.items() if isinstance(node.stage, _PASSING)}
        for name in needs_first({name: self._sources(node) for name, node in passing.items()}):
            self._given[name] = self.read_by(passing[name])

    def given_by(self, node: Node) -> Kind | None:
        """Return the kind that a stage gives; None when its function, a state or a given dataset decides."""
        match node.stage:
            case MapStage(per="record") | ReduceStage():
                return "objects"
        return self._given.get(node.id)  # missing for stages in a cycle, which another check refuses

    def read_by(self, node: Node) -> Kind | None:
        """Return the kind that a stage reads; None when unknown, or when several inputs differ."""
        kinds = {self._of(node, item) for _, item in inputs_of(node.stage)}
        return kinds.pop() if len(kinds) == 1 else None

    def _of(self, node: Node, item: object) -> Kind | None:
        if isinstance(item, Source):
            return source_kind(item)
        if not isinstance(item, str):
            return "objects"
        target = self._graph.find(item, node.loops)
        if isinstance(target, InputTarget):
            return "objects" if target.input.type == "list" else None
        return self.given_by(target.node) if isinstance(target, StageTarget) else None

    def _sources(self, node: Node) -> list[str]:
        found = (self._graph.find(item, node.loops) for _, item in inputs_of(node.stage))
        return [target.node.id for target in found if isinstance(target, StageTarget)]


def grouped_by(graph: StageGraph, reference: object, loops: tuple[str, ...]) -> tuple[str, ShuffleStage] | None:
    """Return the shuffle whose partitions the reference names inside `loops`, directly or through barriers; otherwise
    None.
    """
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


def is_single(graph: StageGraph, reference: str, loops: tuple[str, ...]) -> bool:
    """Return whether the reference, inside `loops`, names the single record of a `per: all` reduce. It may pass through
    barriers, and through a state that is single from the start and in `next`. Raises ReferenceProblem.
    """
    todo = [(reference, loops)]
    asked = {*todo}
    while todo:
        behind = _behind(graph.resolve(*todo.pop()))
        if behind is None:
            return False
        todo += [each for each in behind if each not in asked]
        asked.update(behind)
    return True


def _behind(target: Target) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return the references that must all be single for the target to be single; None: it never is."""
    match target:
        case StageTarget(Node(stage=ReduceStage(per="all"))):
            return []
        case StageTarget(Node(stage=BarrierStage(input=source), loops=around)):
            return [(source, around)]
        case StateTarget(Node(id=loop, stage=LoopStage() as stage, loops=around), name):
            first, following = dict(bare(stage.state)), dict(bare(stage.next))
            again = [(following[name], (*around, loop))] if name in following else []
            return [(first[name], around), *again] if name in first else None
    return None
