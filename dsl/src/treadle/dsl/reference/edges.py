"""Whose data a stage wants, which decides about skipping."""

from __future__ import annotations

from ..graph.graph import Graph, Node, next_references, references_of
from ..graph.needs import broadcast_paths
from ..model import LoopStage


def data_sources(graph: Graph, node: Node) -> list[str]:
    """The stages outside `node` whose data it reads; a loop reads what its body reads."""
    within = [node, *(other for other in graph.nodes.values() if node.id in other.loops)]
    found = set[str]().union(*(_own(graph, other) for other in within))
    return sorted(found - {other.id for other in within})


def _own(graph: Graph, node: Node) -> set[str]:
    references = [(reference, node.loops) for _, reference in references_of(node.stage)]
    if isinstance(node.stage, LoopStage):
        references += [(reference, (*node.loops, node.id)) for _, reference in next_references(node.stage)]
    sources = [graph.node_of(graph.resolve(reference, loops)) for reference, loops in references]
    return {source.id for source in sources if source is not None} | {name for _, name in broadcast_paths(node.stage)}
