"""A workflow as HTML for notebooks: its top stages and the data that passes between them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..model import Spec
from ..templates import template_paths
from .drawing import Figure, svg
from .graph import Node, StageGraph, all_references


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
        targets = [graph.find(reference, loops) for _, reference, loops in all_references(node)]
        sources = [graph.node_of(target) for target in targets if target is not None]
        read = template_paths(node.stage.model_dump(exclude={"stages"}))
        names = [*node.stage.needs, *(path[1] for path in read if path[0] == "stages")]
        for source in [*sources, *map(graph.nodes.get, names)]:
            if source is not None and (ends := (_top(source), _top(node)))[0] != ends[1]:
                yield ends


def _top(node: Node) -> str:
    """The stage itself, or the outermost loop around it."""
    return (*node.loops, node.id)[0]


def _ordered(needs: dict[str, set[str]]) -> list[str]:
    """Topological order. Stages of a cycle, which no run accepts, are left out."""
    ordered: list[str] = []
    while ready := [name for name, before in needs.items() if name not in ordered and before <= set(ordered)]:
        ordered += ready
    return ordered
