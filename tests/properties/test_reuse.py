"""With the cache on, computed and taken-over results are the definition's."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrator.broken_runs import Counted

from treadle.client.testing import EngineResult
from treadle.client.testing.compare import differences, expected
from treadle.client.testing.strategies import Case, cases
from treadle.orchestrator.reuse.content_key import rule_of

from .conftest import Site
from .profiles import examples

MODULE = "properties.functions"
pytestmark = pytest.mark.timeout(0)


def cached(case: Case) -> Case:
    defaults = {**case.document["defaults"], "cache": True}
    return dataclasses.replace(case, document={**case.document, "defaults": defaults})


# -- a run after one of nearly the same document -------------------------------------------------------------------


def timeless(case: Case) -> Case:
    """Functions that read the run's id or time make a stage uncacheable, and the stages after it too."""
    text = json.dumps(case.document).replace("${{ run.startTime == '' }}", "none")
    return dataclasses.replace(case, document=json.loads(text))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Case, Case]:
    """A workflow, and its author's edit: other numbers, or stages that are newly skipped or no longer skipped."""
    case = draw(cases(MODULE, failing=False).map(cached).map(timeless))
    document = copy.deepcopy(case.document)
    for stage in _every(document["stages"]):
        draw(st.sampled_from([_leave, _leave, _skip, _run, _add]))(stage)
    for declared in document.get("inputs", {}).values():
        if declared["type"] == "integer":
            declared["default"] = draw(st.integers(1, 4))
    if draw(st.booleans()):
        document["seed"] = draw(st.integers(0, 1))
    return case, dataclasses.replace(case, document=document)


def _every(stages: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for stage in stages.values():
        yield stage
        yield from _every(stage.get("stages", {}))


def _leave(stage: dict[str, Any]) -> None:
    pass


def _skip(stage: dict[str, Any]) -> None:
    stage["when"] = "1 > 2"


def _run(stage: dict[str, Any]) -> None:
    stage.pop("when", None)


def _add(stage: dict[str, Any]) -> None:
    source = stage.get("input")
    if isinstance(source, dict) and isinstance(source.get("range"), int):
        source["range"] += 1


@examples(12)
@given(both=pairs())
def test_a_run_after_one_of_nearly_the_same_document_has_results_of_its_own(
    no_inline: None, sites: Callable[[int, bool], Site], both: tuple[Case, Case]
) -> None:
    site = sites(2, False)
    base, first = site.place()
    both[0].write(base)
    for run, case in zip((first, f"{first}-again", f"{first}-third"), (*both, both[0]), strict=True):
        found = site.harness.run(site.engine(), case, base, run)
        assert not differences(expected(case, base, run), found, base, run)


@pytest.mark.parametrize(("slots", "host"), [(2, True), (2, False)])
@examples(5)
@given(case=cases(MODULE).map(cached))
def test_run_that_reuses_results_matches_the_definition(
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
