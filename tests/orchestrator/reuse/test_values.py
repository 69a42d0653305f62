"""Values of other stages in the arguments of a cached stage are part of its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from orchestrator.reuse.test_reuse import COUNTED, SUMS, Project
from orchestrator.reuse.test_reuse import projects as projects

FOUR = {"range": 4, "partitions": 1}
COUNTS: dict[str, Any] = {
    "type": "map",
    "input": FOUR,
    "per": "partition",
    "uses": "reused_sums:counted",
    "metrics": {"n": "max"},
}


@pytest.fixture
def project(projects: Callable[..., Project]) -> Project:
    project = projects()
    project.write(reused_sums="from treadle.executors import Result\n" + SUMS + COUNTED)
    return project


def document(word: str, **stages: Any) -> dict[str, Any]:
    """A document in which `told` adds the word to each record."""
    told = {"type": "map", "input": {"range": 1}, "uses": "reused_sums:shown", "with": {"word": word}}
    return {
        "apiVersion": "treadle/v1",
        "name": "values",
        "inputs": {"wanted": {"type": "boolean", "default": True}},
        "defaults": {"cache": True},
        "stages": {**stages, "told": told},
    }


def said(project: Project) -> Any:
    return [value for _, value in project.last.datasets["told"]]


def test_reader_of_an_output_location_reruns_when_the_location_changes(project: Project) -> None:
    output = {"uri": "out/${{ run.id }}", "format": "jsonl"}
    written = document("${{ stages.one.output.uri }}", one={**COUNTS, "output": output})
    for run in ("r1", "r2"):
        assert "told" in project.run(written)
        assert said(project) == [[f"{project.folder}/out/{run} 0"]]
    assert project.differs() == {"told": "place stages.one.output.uri changed"}
    fixed = document("${{ stages.one.output.uri }}", one={**COUNTS, "output": {**output, "ifExists": "replace"}})
    fixed["stages"]["one"]["output"]["uri"] = "out/here"
    assert "told" in project.run(fixed)
    assert project.run(fixed) == {"one.out"}


@pytest.mark.parametrize("between", [{}, {"two": {**COUNTS, "input": "one", "needs": ["one"]}}])
def test_a_value_is_another_one_where_its_stage_is_skipped(project: Project, between: dict[str, Any]) -> None:
    """This also holds if it is skipped because of its input."""
    last = [*between, "one"][0]
    given = document(f"${{{{ stages.{last}.metrics.n }}}}", one={**COUNTS, "when": "inputs.wanted"}, **between)
    for wanted, word in [(True, "5"), (False, "None")]:
        assert "told" in project.run(given, wanted=wanted)
        assert said(project) == [[f"{word} 0"]]
    assert project.differs()["told"].startswith(f"condition of {last}")
    for wanted, word in [(True, "5"), (False, "None")]:
        assert not project.run(given, wanted=wanted)
        assert said(project) == [[f"{word} 0"]]


@pytest.mark.parametrize("when", ["stages.loose.metrics.n == 5", "run.id != 'r9'"])
def test_value_is_not_kept_while_it_is_unknown_whether_its_stage_is_skipped(project: Project, when: str) -> None:
    loose = {**COUNTS, "cache": False}
    given = document("${{ stages.one.metrics.n }}", loose=loose, one={**COUNTS, "when": when})
    assert project.run(given) == {"loose", "one", "told"}
    assert "told" in project.run(given)
