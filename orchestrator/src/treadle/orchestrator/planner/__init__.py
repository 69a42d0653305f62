"""Compiles a spec to a plan. Pure except that it lists the input files.

The decisions about one stage:

read_counts      how often data is read
sources          feeds from files, items, ranges and events
settings         the settings in force
transport        the place of blocks
cacheability     whether a result is cached for later runs

The stages:

pipeline         a segment under construction
maps             also as gangs
exchanges        shuffles in one or two levels
loops, subworkflows
objects          the states of shared objects between stages
outputs          the files of a stage
planner          the state shared by all levels
lowering         one level of the document
graph            all stages of a level

The whole graph:

placement, residency  the executors' limits and abilities
task_groups      the division of wide segments
explain          the plan for display
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from treadle.dsl.graph.stages import all_stages
from treadle.dsl.model import Spec, WorkflowStage
from treadle.dsl.templates import render, template_paths
from treadle.dsl.validation.subworkflows import given_inputs
from treadle.primitives.run_paths import child_run

from ..plan.plan import Plan
from .graph import plan_level
from .lowering import Level
from .objects import report_values
from .placement import crowded, executors_of, settle
from .planner import Planner
from .settings import Decorators
from .sources import Sources
from .subworkflows import inner
from .task_groups import in_groups
from .transport import RunLocation as RunLocation


def make_plan(
    spec: Spec, inputs: Mapping[str, Any], run: Mapping[str, str], functions: Decorators, base: Path, site: RunLocation
) -> Plan:
    """The plan of a validated spec for these inputs.

    `run` holds `id` and `startTime`. `functions` holds the known facts of each function reference. Relative URIs start
    at `base`. Raises UsageError for a problem that appears only now: a missing file, an empty glob, a number out of
    range.
    """
    env = {"inputs": dict(inputs), "run": dict(run)}

    def plan_child(name: str, stage: WorkflowStage) -> Plan:
        child, about = inner(stage), {**run, "id": child_run(run["id"], name)}
        there = structs.replace(site, default=spec.defaults.executor or site.default)
        return make_plan(child, given_inputs(child, render(stage.with_, env)), about, functions, base, there)

    planner = Planner(spec, Sources(env, base, site.assumed_bytes), functions, site, base, plan_child)
    top = Level(planner, spec.stages)
    plan_level(top)
    report_values(top)
    graph = in_groups(crowded(settle(top.graph(), site), site), site)
    used = {name: site.executors[name] for name in sorted(executors_of(graph))}
    settings = {name: dict(known.get("settings", {})) for name, known in functions.items() if known.get("settings")}
    inexact = (*planner.inexact, *_depends_on_run(spec))
    started, outputs = run["startTime"], dict(spec.outputs)
    return Plan(started, graph, outputs, top.refs(), inexact, settings, used, planner.not_kept)


def _depends_on_run(spec: Spec) -> list[str]:
    """Stages whose functions receive the run's id or start time."""
    return [
        f"{name}: is given run.{path[1]}"
        for name, stage in all_stages(spec.stages)
        for path in sorted(template_paths(getattr(stage, "with_", {})))
        if path[0] == "run"
    ]
