"""The stages whose results are cached for later runs, decided once functions and inputs are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.dsl.caching import Cache, first_given
from treadle.dsl.graph.cacheability import Keeping
from treadle.dsl.graph.graph import StageGraph, references_of
from treadle.dsl.graph.stages import all_stages, functions_of
from treadle.dsl.model import LoopStage, Spec, Stage, WorkStage

from ..plan.plan import Kept
from .settings import Decorators, decorated_settings
from .sources import Sources


def kept_stages(graph: StageGraph, sources: Sources, functions: Decorators) -> tuple[dict[str, Kept], dict[str, str]]:
    """(cache settings by stage, reasons by stage that should be cached and cannot be)."""
    spec, stages = graph.spec, {name: node.stage for name, node in graph.nodes.items()}
    wanted = {name: cache for name, stage in stages.items() if (cache := _wanted(spec, stage, functions))}
    if not wanted:
        return {}, {}
    known = {name: reason for name in wanted if (reason := _known(stages[name], sources, functions))}
    keeping = Keeping(graph, wanted, known)
    why_not = {name: reason for name in wanted if (reason := keeping.why_not(name))}
    kept = {name: Kept(str(cache.version), cache.ttl) for name, cache in wanted.items() if name not in why_not}
    return kept | dict(_loops(spec, kept, keeping)), why_not


def _loops(spec: Spec, kept: Mapping[str, Kept], keeping: Keeping) -> Iterator[tuple[str, Kept]]:
    """Cache settings of outermost loops. They expire with the first stage inside; the keys of the stages hold the
    versions."""
    for name, stage in spec.stages.items():
        if isinstance(stage, LoopStage) and not keeping.why_not(name):
            inside = [kept[inner].ttl for inner, _ in all_stages(stage.stages) if inner in kept]
            if inside:
                yield name, Kept("", min(inside))


def _wanted(spec: Spec, stage: Stage, functions: Decorators) -> Cache | None:
    if not isinstance(stage, WorkStage):
        return None
    return first_given(stage.cache, spec.defaults.cache, decorated_settings(stage, functions).cache)


def _known(stage: Stage, sources: Sources, functions: Decorators) -> str:
    codes = {name: functions.get(name, {}).get("code", {}) for name in functions_of(stage)}
    for name, what in sorted((name, what) for name, code in codes.items() for what in code.get("asks", ())):
        return f"{name} asks for `context.{what}`, which differs from run to run"
    names = [name.removeprefix("inputs.") for _, name in references_of(stage) if name.startswith("inputs.")]
    if any(map(sources.gives_events, names)):
        return "the events of a topic are read anew"
    return ""
