"""Parts of the SVG pictures of figures."""

from __future__ import annotations

from collections.abc import Iterable


def picture(width: float, height: float, parts: Iterable[str]) -> str:
    """The parts on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def axes(left: float, top: float, right: float, bottom: float) -> str:
    return f'<path d="M{left},{top} V{bottom} H{right}" fill="none" stroke="#888"/>'


def line(points: Iterable[tuple[float, float]], colour: str, more: str = "") -> str:
    """`more`: further attributes."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" {more} points="{places}"/>'


def text(x: float, y: float, words: str, colour: str = "#444", more: str = "") -> str:
    """`more`: further attributes."""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-family="sans-serif" font-size="11" fill="{colour}" {more}>{words}</text>'
    )
