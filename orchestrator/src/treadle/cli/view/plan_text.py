"""A plan as text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..common import formatting

if TYPE_CHECKING:
    from treadle.orchestrator.plan.plan import Plan
    from treadle.orchestrator.planner.explain import NodeExplanation


def show_plan(plan: Plan, notes: Mapping[str, list[str]] | None = None, *, stderr: bool = False) -> None:
    """A paragraph for each node; `notes` holds additional lines for some nodes."""
    from treadle.orchestrator.planner.explain import explain

    lines = [line for view in explain(plan) for line in _paragraph(view, (notes or {}).get(view.node, []))]
    if plan.inexact:
        lines.append("two runs may differ, because of:")
        lines += [f"  {reason}" for reason in plan.inexact]
    print("\n".join(lines), file=sys.stderr if stderr else sys.stdout)


def _paragraph(view: NodeExplanation, notes: list[str]) -> list[str]:
    margin = "  " * view.depth
    count = formatting.counted(view.partitions, "partition") if view.partitions else ""
    if view.kind == "segment" and not view.partitions:
        count = "partitions: known when its input is"
    reads = f"reads {view.reads}" if view.reads else ""
    makes = f"makes about {formatting.size(view.estimate)}" if view.estimate else ""
    about = ", ".join(filter(None, [view.kind if view.kind != "segment" else "", count, reads, makes]))
    lines = [f"{margin}{view.node}  {about}"]
    lines += [f"{margin}  {what}" for what in view.does]
    lines += [f"{margin}  when {view.when}"] if view.when else []
    lines += [f"{margin}  writes {view.writes}"] if view.writes else []
    lines += [f"{margin}  runs on {view.executor}"] if view.executor not in ("", "local") else []
    return [*lines, *(f"{margin}  - {reason}" for reason in view.reasons), *(f"{margin}  {note}" for note in notes), ""]
