"""Spec to plan. Pure but for listing the input files.

General layout: `references` (the edges of a spec), `sources` (what comes from outside), `settings` and `transport`
(decisions about one stage), `places` (what the executors can do), `flow` (a segment under construction), `maps`,
`exchanges` and `loops` (the stages), `graph` (one level put together), `planner` (what the levels share), `explain`
(what a person sees).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.dsl.model import Spec
from treadle.dsl.templates import template_paths

from ..plan import Plan
from .flow import Decorators
from .graph import GraphPlanner, dataset_refs
from .places import executors_of, settle
from .planner import Planner
from .sources import Sources
from .transport import Site as Site


def make_plan(
    spec: Spec, inputs: Mapping[str, Any], run: Mapping[str, str], functions: Decorators, base: Path, site: Site
) -> Plan:
    """The plan of a validated spec for these inputs.

    `run` holds `id` and `startTime`; `functions` what is known of each function reference; relative URIs start at
    `base`. Raises UsageError for what only shows now: a missing file, an empty glob, a number out of range.
    """
    env = {"inputs": dict(inputs), "run": dict(run)}
    planner = Planner(spec, Sources(env, base, site.assumed_bytes), functions, site, base)
    top = GraphPlanner(planner, spec.stages)
    top.plan()
    graph = settle(top.graph(), site)
    used = {name: site.executors[name] for name in sorted(executors_of(graph))}
    settings = {name: dict(known.get("settings", {})) for name, known in functions.items() if known.get("settings")}
    inexact = (*planner.inexact, *_depends_on_run(spec))
    datasets = dataset_refs(top, spec.stages)
    started, outputs = run["startTime"], dict(spec.outputs)
    return Plan(started, graph, outputs, datasets, inexact, settings, used, planner.not_kept)


def _depends_on_run(spec: Spec) -> list[str]:
    """Stages whose functions are told the run's id or start time."""
    from .references import all_stages

    return [
        f"{name}: is given run.{path[1]}"
        for name, stage in all_stages(spec.stages)
        for path in sorted(template_paths(getattr(stage, "with_", {})))
        if path[0] == "run"
    ]
