"""Which stages a node begins and ends. Pure.

A stage may need several nodes (`total.leaves`, `total.level1`, `total`), and a node may be several fused stages; nodes
of one stage are a chain, so it begins with the first of them and ends with the last.
"""

from __future__ import annotations

from ...plan import Graph


def begun_with(graph: Graph, node: str) -> tuple[str, ...]:
    """Stages of which nothing has run before this node."""
    return tuple(stage for stage in graph.node(node).stages if graph.nodes_of(stage)[0].id == node)


def ended_with(graph: Graph, node: str) -> tuple[str, ...]:
    """Stages of which nothing is left to run after this node."""
    return tuple(stage for stage in graph.node(node).stages if graph.nodes_of(stage)[-1].id == node)
