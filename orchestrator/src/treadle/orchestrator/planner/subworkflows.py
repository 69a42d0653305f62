"""Workflows that run as children: the node, and the plan that the child would have now.

A child is planned when it starts, since its parent may make its inputs. If its inputs are known earlier, it is also
planned with its parent, so that the plan shows it and an impossible run is refused early.
"""

from __future__ import annotations

from collections.abc import Collection

from treadle.dsl.graph.requirements import expression_paths, order_stages, topological
from treadle.dsl.graph.stages import all_stages
from treadle.dsl.model import Spec, WorkflowStage
from treadle.dsl.templates import template_paths
from treadle.primitives.errors import InternalError, TreadleError, UsageError

from ..plan.plan import Child, Graph
from .lowering import Level
from .pipeline import nested_paths
from .placement import PlacementRefused


def inner(stage: WorkflowStage) -> Spec:
    """The workflow that the stage runs. A run's spec holds it in place of its file."""
    if isinstance(stage.uses, str):
        raise InternalError(f"{stage.uses} was not read before the run was planned")
    return stage.uses


def check_named(spec: Spec, executors: Collection[str], path: tuple[str, ...] = ()) -> None:
    """Raises PlacementRefused for executors that do not exist, also in child workflows. `path`: the path to the
    document.

    The executors' other limits depend on the inputs.
    """
    named = [
        (getattr(stage, "executor", None), ("stages", name, "executor")) for name, stage in all_stages(spec.stages)
    ]
    for executor, place in [(spec.defaults.executor, ("defaults", "executor")), *named]:
        if executor is not None and executor not in executors:
            text = f"there is no executor {executor!r} here"
            raise PlacementRefused(text, f"The profile has: {', '.join(executors)}.", (*path, *place), path[:-1])
    for name, stage in spec.stages.items():
        if isinstance(stage, WorkflowStage):
            check_named(inner(stage), executors, (*path, "stages", name, "uses"))


def child_node(level: Level, name: str, stage: WorkflowStage) -> Child:
    planned, reason = _early(level, name, stage)
    inside = inner(stage).stages
    stages = ", ".join(f"{own} ({inside[own].type})" for own in topological(inside))
    return Child(
        id=name,
        stages=(name,),
        workflow=inner(stage).name,
        graph=planned,
        after=tuple(sorted(order_stages(stage))),
        when=stage.when or "",
        paths=tuple(sorted(nested_paths(expression_paths(stage)))),
        reasons=(f"runs as a run of its own, {reason}", *([] if planned else [f"its stages: {stages}"])),
    )


def _early(level: Level, name: str, stage: WorkflowStage) -> tuple[Graph | None, str]:
    """(the child's graph if it can be planned now, the reason). Raises PlacementRefused, UsageError."""
    if reason := _why_not_early(level, stage):
        check_named(inner(stage), level.planner.site.executors, ("stages", name, "uses"))
        return None, reason
    try:
        plan = level.planner.plan_child(name, stage)
    except TreadleError as error:
        if order_stages(stage):
            check_named(inner(stage), level.planner.site.executors, ("stages", name, "uses"))
            return None, f"planned when it starts; now it could not be: {error.message}"
        if isinstance(error, UsageError):
            raise _inside(name, error) from error
        raise
    level.planner.inexact += [f"{name}/{reason}" for reason in plan.inexact]
    level.planner.not_kept |= {f"{name}/{inner}": why for inner, why in plan.not_kept.items()}
    return plan.graph, "planned anew when it starts"


def _why_not_early(level: Level, stage: WorkflowStage) -> str:
    """The reason not to plan the child now. Empty: its inputs are known, and it may run."""
    if level.planner.sources.excuse:
        return "which is skipped with these inputs"
    if any(path[0] == "stages" for path in template_paths(stage.with_)):
        return "planned when it starts: its inputs come from other stages"
    return ""


def _inside(name: str, error: UsageError) -> UsageError:
    own = ("stages", name)
    if isinstance(error, PlacementRefused):
        return PlacementRefused(
            f"{name}/{error.message}", error.hint, *((*own, "uses", *path) for path in error.paths), own
        )
    return PlacementRefused(f"{name}: {error.message}", error.hint, own)
