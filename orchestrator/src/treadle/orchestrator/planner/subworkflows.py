"""Workflows that run as children: a node, and what the child's plan would be if it started now.

A child is planned when it starts, since what it reads may be made by its parent. Where its inputs are known before, it
is planned with its parent too: so that people see it, and a run that could never succeed is refused early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.dsl.model import Spec, WorkflowStage
from treadle.dsl.templates import template_paths
from treadle.primitives.errors import InternalError, TreadleError, UsageError

from ..plan import Child, Graph
from .flow import nested_paths
from .places import Refused
from .references import expression_paths, order_stages

if TYPE_CHECKING:
    from .graph import GraphPlanner


def inner(stage: WorkflowStage) -> Spec:
    """The workflow that the stage runs, which stands in a run's spec in place of its file."""
    if isinstance(stage.uses, str):
        raise InternalError(f"{stage.uses} was not read before the run was planned")
    return stage.uses


def child_node(graph: GraphPlanner, name: str, stage: WorkflowStage) -> Child:
    planned, reason = _early(graph, name, stage)
    return Child(
        id=name,
        stages=(name,),
        workflow=inner(stage).name,
        graph=planned,
        after=tuple(sorted(order_stages(stage))),
        when=stage.when or "",
        paths=tuple(sorted(nested_paths(expression_paths(stage)))),
        reasons=(f"runs as a run of its own, {reason}",),
    )


def _early(graph: GraphPlanner, name: str, stage: WorkflowStage) -> tuple[Graph | None, str]:
    """The child's graph, where it can be known, and when it is planned. Raises Refused, UsageError."""
    if any(path[0] == "stages" for path in template_paths(stage.with_)):
        return None, "planned when it starts: its inputs come from other stages"
    try:
        plan = graph.planner.plan_child(name, stage)
    except TreadleError as error:
        if order_stages(stage):
            return None, f"planned when it starts; now it could not be: {error.message}"
        if isinstance(error, UsageError):
            raise _inside(name, error) from error
        raise
    graph.planner.inexact += [f"{name}/{reason}" for reason in plan.inexact]
    return plan.graph, "planned anew when it starts"


def _inside(name: str, error: UsageError) -> UsageError:
    own = ("stages", name)
    if isinstance(error, Refused):
        return Refused(f"{name}/{error.message}", error.hint, *((*own, "uses", *path) for path in error.paths), own)
    return Refused(f"{name}: {error.message}", error.hint, own)
