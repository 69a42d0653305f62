"""A run as HTML for notebooks: its state, the graph of its plan with the state of each node, and its failure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from treadle.dsl.graph.drawing import Figure, svg

if TYPE_CHECKING:
    from .progress import StageView
    from .run_status import RunStatus

_COLOURS = {"done": "#2e7d32", "running": "#1565c0", "failed": "#c62828", "stopped": "#ef6c00", "skipped": "#9e9e9e"}


def html(status: RunStatus) -> str:
    """The run at one moment."""
    failure = status.end.failure if status.end else None
    why = f": {failure.failure}: {failure.message}" if failure else ""
    head = f"<div><b>{escape(status.run)}</b> {escape(status.state + why)}</div>"
    known = {stage.node for stage in status.stages}
    edges = [edge for edge in status.edges if known.issuperset(edge)]
    return head + svg([_figure(stage) for stage in status.stages], edges)


def _figure(stage: StageView) -> Figure:
    count = f", {stage.committed} of {stage.partitions}" if stage.partitions else ""
    title = ", ".join(stage.stages) or stage.node
    return Figure(stage.node, title, f"{stage.state}{count}", _COLOURS.get(stage.state, "#757575"))
