"""With the cache on, results are the definition's: when they are made, and when they are taken over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from orchestrator.broken_runs import Counted

from treadle.orchestrator.reuse.components import rule_of
from treadle.orchestrator.testing import EngineResult
from treadle.orchestrator.testing.compare import differences, expected
from treadle.orchestrator.testing.strategies import Case, cases

from .conftest import Site
from .profiles import examples

MODULE = "properties.functions"
pytestmark = pytest.mark.timeout(0)


def cached(case: Case) -> Case:
    defaults = {**case.document["defaults"], "cache": True}
    return dataclasses.replace(case, document={**case.document, "defaults": defaults})


@pytest.mark.parametrize(("slots", "host"), [(2, True), (2, False)])
@examples(5)
@given(case=cases(MODULE).map(cached))
def test_a_run_that_takes_results_over_has_those_of_the_definition(
    no_inline: None, sites: Callable[[int, bool], Site], slots: int, host: bool, case: Case
) -> None:
    site = sites(slots, host)
    base, first = site.place()
    case.write(base)
    for run in (first, f"{first}-again"):
        executor = Counted(site.executor, lambda _segment, _outcome: None)
        engine = site.engine(executor)
        found = site.harness.run(engine, case, base, run)
        assert not differences(expected(case, base, run), found, base, run)
    if isinstance(found, EngineResult):
        graph = engine.site.open(run).plan.graph
        kept = {node.id for node in graph.nodes if rule_of(node)}
        conditional = any(node.when for node in graph.nodes)
        made = {segment.partition("/")[0] for segment, _ in executor.outcomes}
        assert conditional or not kept & (made | {outer.rpartition("-")[0] for outer in made})
