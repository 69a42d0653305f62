"""The graph of a run as boxes and lines. A node's layer is its longest distance from a start. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

WIDTH, HEIGHT = 190, 46
"""Size of a box, in pixels."""
GAP_X, GAP_Y = 56, 18


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
