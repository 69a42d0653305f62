"""A graph as boxes and lines, and the graph of a workflow as HTML for notebooks.

A node's layer is its longest distance from a start. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from msgspec import Struct

from ..model import Spec
from ..templates import template_paths
from .graph import Node, StageGraph, all_references

WIDTH, HEIGHT = 190, 46
"""Size of a box, in pixels."""
GAP_X, GAP_Y = 56, 18
_LETTERS = 26
"""Longest text that fits into a box."""


class Box(Struct, frozen=True):
    node: str
    x: int
    y: int


class Curve(Struct, frozen=True):
    """A curve from the right side of one box to the left side of another."""

    path: str
    """SVG path data."""


class Picture(Struct, frozen=True):
    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Curve, ...]


def draw(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Picture:
    """Boxes from left to right; `nodes` are in topological order. Edges implied by other edges are not drawn."""
    needs = _needs(nodes, edges)
    layers = _layers(nodes, needs)
    rows: dict[int, int] = defaultdict(int)
    boxes: dict[str, Box] = {}
    for node in nodes:
        layer = layers[node]
        boxes[node] = Box(node, 1 + layer * (WIDTH + GAP_X), 1 + rows[layer] * (HEIGHT + GAP_Y))
        rows[layer] += 1
    width = (max(layers.values(), default=0) + 1) * (WIDTH + GAP_X) - GAP_X + 2
    height = max(rows.values(), default=1) * (HEIGHT + GAP_Y) - GAP_Y + 2
    lines = tuple(_line(boxes[need], boxes[node]) for node in nodes for need in needs[node])
    return Picture(width, height, tuple(boxes.values()), lines)


def _needs(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    """The needs of each node, without those implied by its other needs."""
    needs: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in edges:
        needs[target].append(source)
    above: dict[str, set[str]] = {}
    for node in nodes:
        far = set[str]().union(*(above[need] for need in needs[node]))
        above[node] = far.union(needs[node])
        needs[node] = [need for need in needs[node] if need not in far]
    return needs


def _layers(nodes: Sequence[str], needs: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
    layers: dict[str, int] = {}
    for node in nodes:
        layers[node] = max((layers[need] + 1 for need in needs[node]), default=0)
    return layers


def _line(source: Box, target: Box) -> Curve:
    x0, y0 = source.x + WIDTH, source.y + HEIGHT // 2
    x1, y1 = target.x, target.y + HEIGHT // 2
    bend = max(GAP_X // 2, (x1 - x0) // 2)
    return Curve(f"M{x0} {y0}C{x0 + bend} {y0} {x1 - bend} {y1} {x1} {y1}")


class Figure(Struct, frozen=True):
    """The content of a box: two lines of text, and the colour of its border."""

    node: str
    title: str
    note: str = ""
    colour: str = "#757575"


def svg(figures: Sequence[Figure], edges: Iterable[tuple[str, str]]) -> str:
    """An SVG image that stands on a light and on a dark page. `figures` are in topological order."""
    picture = draw([figure.node for figure in figures], edges)
    lines = "".join(f'<path d="{line.path}" fill="none" stroke="currentColor" opacity=".5"/>' for line in picture.lines)
    boxes = "".join(_box(box, figure) for box, figure in zip(picture.boxes, figures, strict=True))
    size = f'width="{picture.width}" height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}"'
    style = 'style="max-width:100%;height:auto" font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img">{lines}{boxes}</svg>'


def _box(box: Box, figure: Figure) -> str:
    title, note = (_shortened(text) for text in (figure.title, figure.note))
    middle = box.x + WIDTH // 2
    return (
        f"<g><title>{escape(figure.title)}</title>"
        f'<rect x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="none" '
        f'stroke="{figure.colour}" stroke-width="2"/>'
        f'<text x="{middle}" y="{box.y + 20}" text-anchor="middle" fill="currentColor">{title}</text>'
        f'<text x="{middle}" y="{box.y + 36}" text-anchor="middle" fill="{figure.colour}">{note}</text></g>'
    )


def _shortened(text: str) -> str:
    return escape(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…")


def html(spec: Spec) -> str:
    """The name of the workflow above the graph of its top stages and the data that passes between them. The stages
    inside a loop count as the loop.
    """
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
