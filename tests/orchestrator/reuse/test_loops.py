"""A loop is cached as a whole, if every stage in it is cacheable and its decisions are the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from orchestrator.reuse.test_reuse import HELPERS, SUMS, Project
from orchestrator.reuse.test_reuse import projects as projects

from treadle.orchestrator.plan.plan import LoopNode
from treadle.orchestrator.reuse.stage_rerun import take_back
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import MissingError

DOCUMENT: dict[str, Any] = {
    "apiVersion": "treadle/v1",
    "name": "turns",
    "inputs": {"limit": {"type": "integer", "default": 9}, "more": {"type": "integer", "default": 1}},
    "defaults": {"cache": True},
    "stages": {
        "one": {"type": "map", "input": {"range": 6, "partitions": 2}, "uses": "reused_sums:first"},
        "turns": {
            "type": "loop",
            "state": {"data": "one", "count": 0},
            "maxIterations": 3,
            "until": "state.count >= inputs.limit",
            "stages": {"step": {"type": "map", "input": "state.data", "uses": "reused_sums:first"}},
            "next": {"data": "step", "count": "${{ state.count + inputs.more }}"},
            "onExhausted": "succeed",
        },
        "lines": {
            "type": "map",
            "input": "turns.state.data",
            "uses": "reused_sums:shown",
            "with": {"word": "${{ stages.turns.state.count }}"},
            "output": {"uri": "out/${{ run.id }}", "format": "text"},
        },
    },
}
STEPS = {f"turns-{number}/step" for number in (1, 2, 3)}


@pytest.fixture
def project(projects: Callable[..., Project]) -> Project:
    return projects()


def changed(**turns: Any) -> dict[str, Any]:
    """The document with other settings of the loop."""
    document = copy.deepcopy(DOCUMENT)
    document["stages"]["turns"] |= turns
    return document


def loop_of(project: Project) -> LoopNode:
    node = project.engine.site.open(project.runs[-1]).plan.graph.node("turns")
    assert isinstance(node, LoopNode)
    return node


def test_a_loop_is_taken_over_as_one(project: Project) -> None:
    assert project.run(DOCUMENT) == {"one", *STEPS, "lines", "lines.out"}
    first, known = project.lines(), project.last
    assert project.run(DOCUMENT) == {"lines.out"}
    assert project.lines() == first != []
    assert (project.last.datasets, project.last.metrics) == (known.datasets, known.metrics)
    assert not list(project.store.list(f"runs/{project.runs[-1]}/segments/turns/ledger"))
    lent = {info.name.removeprefix("runs/r1/lent/r2/") for info in project.store.list("runs/r1/lent")}
    assert lent == {"one", "turns-3/step", "lines"}


@pytest.mark.parametrize(
    ("turns", "inputs", "reason"),
    [
        ({"maxIterations": 2}, {}, "`next`, `until` or `maxIterations` of the loop changed"),
        ({"state": {"data": "one", "count": 1}}, {}, 'initial state: {"count": "0"} -> {"count": "1"}'),
        ({}, {"limit": 2}, 'inputs of the steps: {"limit": 9, "more": 1} -> {"limit": 2, "more": 1}'),
        ({}, {"more": 2}, 'inputs of the steps: {"limit": 9, "more": 1} -> {"limit": 9, "more": 2}'),
    ],
)
def test_what_decides_in_a_loop_is_part_of_its_key(
    project: Project, turns: dict[str, Any], inputs: dict[str, int], reason: str
) -> None:
    project.run(DOCUMENT)
    made = project.run(changed(**turns), again=True, **inputs)
    assert made & STEPS
    assert "one" not in made
    assert project.differs()["turns"] == reason
    assert project.run(changed(**turns), again=True, **inputs) == {"lines.out"}


def test_the_body_and_the_version_of_a_stage_in_it_are_part_of_its_key(project: Project) -> None:
    project.run(DOCUMENT)
    document = changed()
    document["stages"]["turns"]["stages"]["step"]["cache"] = {"version": 2, "ttl": "1d"}
    assert project.run(document) == {*STEPS, "lines", "lines.out"}
    assert project.differs()["turns"] == "reads step, which differs"
    assert project.differs()["step"] == 'cache version: "" -> "2"'
    cache = loop_of(project).cache
    assert cache is not None
    assert cache.ttl == 86_400
    project.write(reused_helpers=HELPERS.replace("x + 1", "x + 2"))
    assert project.run(document) == {"one", *STEPS, "lines", "lines.out"}


def test_the_name_of_a_loop_is_part_of_its_key(project: Project) -> None:
    """It determines the random numbers of its stages."""
    drawn = "def first(x, context):\n    return x + int(context.rng.integers(2**40))"
    project.write(reused_sums=SUMS.replace("def first(x):", f"{drawn}\n\n\ndef other(x):"))
    project.run(DOCUMENT)
    document = changed()
    document["stages"]["rounds"] = document["stages"].pop("turns")
    document["stages"]["lines"] |= {"input": "rounds.state.data", "with": {"word": "${{ stages.rounds.state.count }}"}}
    assert "rounds-3/step" in project.run(document)
    taken = project.lines()
    project.run(document, again=False)
    assert project.lines() == taken


def test_a_condition_inside_a_loop_is_part_of_its_key(project: Project) -> None:
    aside = {"type": "map", "input": "state.data", "uses": "reused_sums:first", "when": "state.count < 1"}
    document = changed()
    document["stages"]["turns"]["stages"]["aside"] = aside
    project.run(document)
    assert project.run(document) == {"lines.out"}
    document["stages"]["turns"]["stages"]["aside"] = {**aside, "when": "state.count < 2"}
    assert "turns-2/aside" in project.run(document)
    assert project.differs()["turns"].startswith("conditions in the loop: ")


@pytest.mark.parametrize(
    ("step", "until", "reason"),
    [
        ({"cache": False}, "state.count > 8", "it depends on 'turns', which holds 'step', which is not cached"),
        (
            {"with": {"y": "${{ run.id }}"}},
            "state.count > 8",
            "it depends on 'turns', which is given `run.id`, which differs from run to run",
        ),
        (
            {},
            "run.id == 'r2'",
            "it depends on 'turns', which is given `run.id`, which differs from run to run",
        ),
    ],
)
def test_a_loop_that_is_not_the_same_each_time_runs_each_time(
    project: Project, step: dict[str, Any], until: str, reason: str
) -> None:
    project.write(reused_sums=SUMS.replace("def first(x):", "def first(x, **_):"))
    document = changed(until=until)
    document["stages"]["turns"]["stages"]["step"] |= step
    project.run(document)
    assert {"turns-1/step", "lines"} <= project.run(document)
    plan = project.engine.site.open(project.runs[-1]).plan
    assert plan.not_kept["lines"] == reason
    assert loop_of(project).cache is None


def test_the_last_state_outlives_the_shared_memory_that_it_was_made_in(
    projects: Callable[..., Project], tmp_path: Path
) -> None:
    project = projects(tmp_path / "host")
    assert project.run(DOCUMENT) == {"one", *STEPS, "lines", "lines.out"}
    kept = {info.name.split("/")[3] for info in project.store.list("runs/r1/blocks") if "turns" in info.name}
    assert kept == {"turns-3"}, "earlier iterations are not copied to the store"
    assert project.engine.site.host is not None
    project.engine.site.host.delete_run("r1")
    assert project.run(DOCUMENT) == {"lines.out"}


def test_a_block_that_is_lost_before_it_is_kept_costs_later_runs_only(
    projects: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, copy_to_store = projects(tmp_path / "host"), Blocks.copy_to_store

    def lost(blocks: Blocks, ref: BlockRef) -> BlockRef:
        if ref.name.startswith("turns-3/"):
            raise MissingError(f"{ref.name} is gone")
        return copy_to_store(blocks, ref)

    monkeypatch.setattr(Blocks, "copy_to_store", lost)
    assert project.run(DOCUMENT) == {"one", *STEPS, "lines", "lines.out"}
    monkeypatch.undo()
    assert project.run(DOCUMENT) >= STEPS
    assert not project.run(DOCUMENT) & STEPS


def test_a_loop_whose_blocks_are_gone_runs_again(project: Project) -> None:
    project.run(DOCUMENT)
    project.store.delete_prefix("runs/r1/blocks/turns-3")
    project.store.delete_prefix("runs/r1/blocks/lines")
    document = changed()
    document["stages"]["lines"]["with"] = {"word": "other"}
    assert project.run(document) == {*STEPS, "lines", "lines.out"}


def test_a_loop_that_a_person_has_run_again_is_not_taken_over(project: Project) -> None:
    project.run(DOCUMENT)
    run = project.submit(DOCUMENT, {})
    project.harness.result(project.engine, run)
    opened = project.engine.site.open(run)
    assert take_back(opened.files, opened.plan, "turns", 2, opened.site.files) == ["turns", "lines", "lines.out"]
    project.executor.outcomes.clear()
    anew = project.harness.engine(project.store, project.executor, None)
    project.harness.result(anew, run, resumption=2)
    assert {segment for segment, _ in project.executor.outcomes} == {*STEPS, "lines", "lines.out"}
