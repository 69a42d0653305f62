"""Whose data a stage wants: what decides about skipping, and whether a dataset is one record."""

from __future__ import annotations

from ..expressions import Path
from ..graph.graph import (
    Graph,
    Node,
    StageTarget,
    StateTarget,
    bare,
    is_broadcast,
    next_references,
    references_of,
)
from ..model import BarrierStage, LoopStage, MapStage, ReduceStage
from ..templates import expressions_in


class Edges:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def data_sources(self, node: Node) -> list[str]:
        """The stages outside `node` whose data it reads; a loop reads what its body reads."""
        found = {source for source in self._own(node) if source != node.id}
        for other in self.graph.nodes.values():
            if node.id in other.loops:
                found |= self._own(other)
        inside = {other.id for other in self.graph.nodes.values() if node.id in other.loops} | {node.id}
        return sorted(found - inside)

    def _own(self, node: Node) -> set[str]:
        references = [(reference, node.loops) for _, reference in references_of(node.stage)]
        if isinstance(node.stage, LoopStage):
            references += [(reference, (*node.loops, node.id)) for _, reference in next_references(node.stage)]
        targets = [self.graph.resolve(reference, loops) for reference, loops in references]
        sources = [self.graph.node_of(target) for target in targets]
        return {source.id for source in sources if source is not None} | set(self.broadcasts(node).values())

    def broadcasts(self, node: Node) -> dict[tuple[str | int, ...], str]:
        """Place below `with` -> the broadcast stage whose value stands there."""
        found = {}
        arguments = node.stage.with_ if isinstance(node.stage, (MapStage, ReduceStage)) else {}
        for place, expr in expressions_in(arguments):
            match expr:
                case Path(("stages", name)) if is_broadcast(self.graph.resolve(name, node.loops)):
                    found[place] = name
        return found

    def is_single(
        self, reference: str, loops: tuple[str, ...], asked: frozenset[tuple[str, str]] = frozenset()
    ) -> bool:
        """Whether the dataset is the one record of a `per: all` reduce, also through barriers and states of loops."""
        match self.graph.resolve(reference, loops):
            case StageTarget(Node(stage=ReduceStage(per="all"))):
                return True
            case StageTarget(Node(stage=BarrierStage(input=source), loops=around)):
                return self.is_single(source, around, asked)
            case StateTarget(loop, name):
                return (loop.id, name) in asked or self._is_single_state(loop, name, asked | {(loop.id, name)})
        return False

    def _is_single_state(self, loop: Node, name: str, asked: frozenset[tuple[str, str]]) -> bool:
        assert isinstance(loop.stage, LoopStage)
        first, following = dict(bare(loop.stage.state)), dict(bare(loop.stage.next))
        if name not in first or not self.is_single(first[name], loop.loops, asked):
            return False
        return name not in following or self.is_single(following[name], (*loop.loops, loop.id), asked)
