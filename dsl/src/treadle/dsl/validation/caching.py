"""Checks `cache` on stages whose results do not depend only on code, parameters and inputs."""

from __future__ import annotations

from ..caching import Cache, first_given
from ..graph.cacheability import NOT_CACHED, Keeping
from ..graph.graph import StageGraph
from .report import Report


def check_caching(graph: StageGraph, report: Report) -> None:
    """Report stages whose own `cache` is impossible; a `cache` of `defaults` applies only to stages that
    can have it.
    """
    given = {name: getattr(node.stage, "cache", None) for name, node in graph.nodes.items()}
    usual = graph.spec.defaults.cache
    for path, cache in [(("defaults",), usual), *((node.path, given[name]) for name, node in graph.nodes.items())]:
        if isinstance(cache, Cache) and cache.ttl == 0:
            report.add("T015", (*path, "cache", "ttl"), "'ttl' must be more than nothing")
    asking = [name for name, cache in given.items() if first_given(cache)]
    if not asking:
        return
    keeping = Keeping(graph, {name for name, cache in given.items() if first_given(cache, usual)})
    for name in asking:
        reason = keeping.why_not(name)
        if reason:
            path = (*graph.nodes[name].path, "cache")
            report.add("T223", path, f"'{name}' cannot be cached: {reason}", _hint(reason), key=True)


def _hint(reason: str) -> str:
    if reason.endswith(NOT_CACHED.removeprefix("it ")):
        return "what a cached stage reads must be cached too: give that stage a `cache`, or set it in `defaults`"
    return "remove `cache`: a later run could not tell whether it would get the same"
