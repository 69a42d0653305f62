"""A workflow as HTML for notebooks: its top stages and the data that passes between them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..model import Spec
from .drawing import Figure, svg
from .graph import StageGraph, all_references


def html(spec: Spec) -> str:
    """The name of the workflow above its graph. The stages inside a loop count as the loop."""
    graph = StageGraph(spec)
    edges = list(dict.fromkeys(_edges(graph)))
    needs = {name: {source for source, target in edges if target == name} for name in spec.stages}
    ordered = _ordered(needs)
    figures = [Figure(name, name, spec.stages[name].type) for name in ordered]
    known = [edge for edge in edges if set(edge) <= set(ordered)]
    return f"<div><b>{escape(spec.name)}</b></div>{svg(figures, known)}"


def _edges(graph: StageGraph) -> Iterator[tuple[str, str]]:
    """(source, consumer) among the top stages."""
    for node in graph.nodes.values():
        for _, reference, loops in all_references(node):
            target = graph.find(reference, loops)
            source = None if target is None else graph.node_of(target)
            if source is not None:
                ends = [(one.loops or (one.id,))[0] for one in (source, node)]
                if ends[0] != ends[1]:
                    yield ends[0], ends[1]


def _ordered(needs: dict[str, set[str]]) -> list[str]:
    """Topological order. Stages of a cycle, which no run accepts, are left out."""
    ordered: list[str] = []
    while ready := [name for name, before in needs.items() if name not in ordered and before <= set(ordered)]:
        ordered += ready
    return ordered
