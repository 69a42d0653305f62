"""No plan waits for itself. Segments that only read a stage's input, or write its files, run when the stage does."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrator.planner.test_planner import SITE, SOURCE, mapped, plan, segments, stages_of
from properties.profiles import examples

from treadle.orchestrator.dispatcher.tasks.outputs import check
from treadle.orchestrator.plan.plan import LoopNode, Plan, Segment
from treadle.orchestrator.scheduler.instructions import Complete, Instruction, NodeDone, RunNode, Summary
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.primitives.errors import UsageError

GO: dict[str, Any] = {"inputs": {"go": {"type": "boolean"}}, "given": {"go": False}}
TOTAL = {"type": "reduce", "per": "all", "combine": "m:add"}


def run_to_end(found: Plan) -> tuple[bool, set[str]]:
    """(whether the run ends when all started nodes succeed, the started nodes)."""
    scheduler = Scheduler(found.graph, {"inputs": GO["given"], "run": {"id": "r"}})
    started, todo = set[str](), deque[Instruction](scheduler.start())
    while todo:
        match todo.popleft():
            case RunNode(node):
                started.add(node)
                todo += scheduler.handle(NodeDone(node, Summary()))
            case Complete():
                return True, started
    return False, started


def test_stages_that_wait_for_the_producers_of_each_other_are_not_both_fused() -> None:
    """If both were fused, each segment would wait for the other for ever."""
    stages = {"p": mapped(SOURCE), "q": mapped(SOURCE), "s": mapped("p", needs=["q"]), "r": mapped("q", needs=["p"])}
    found = plan(stages)
    assert stages_of(found) == {"q": ("q",), "s": ("p", "s"), "r": ("r",)}
    assert "r is apart from q: r also needs what comes after q" in segments(found)["r"].reasons
    assert run_to_end(found) == (True, {"q", "s", "r"})


def test_inputs_of_one_shuffle_are_each_fused_with_it() -> None:
    groups = {"type": "shuffle", "input": ["a", "b"], "by": "key", "partitions": 2, "needs": ["c"]}
    found = plan(
        {"a": mapped(SOURCE), "b": mapped(SOURCE), "c": mapped(SOURCE), "groups": groups, "d": mapped("groups")}
    )
    assert stages_of(found)["groups.0"] == ("a", "groups")
    assert stages_of(found)["groups.1"] == ("b", "groups")


@pytest.mark.parametrize(
    "reader",
    [
        mapped("a", **{"with": {"v": "${{ stages.x }}"}}),
        {**TOTAL, "input": "a", "with": {"v": "${{ stages.x }}"}},
        {"type": "shuffle", "input": ["a", "x"], "by": "key", "partitions": 2},
    ],
    ids=["map", "reduce", "shuffle"],
)
def test_a_stage_runs_though_its_reader_is_skipped_because_of_another_one(reader: dict[str, Any]) -> None:
    """In one segment, a skip of the reader would skip both."""
    stages = {"x": {"type": "broadcast", "input": SOURCE, "when": "inputs.go"}, "a": mapped(SOURCE), "b": reader}
    found = plan(stages, **GO)
    assert run_to_end(found) == (True, {"a"})
    assert "b is apart from a: b is skipped where x is" in str(segments(found))
    assert "a" not in segments(plan({**stages, "x": mapped(SOURCE)}, **GO)), "otherwise they are one"


def test_skippable_shuffle_is_not_gathered_for_a_reader_with_two_inputs() -> None:
    groups = {"type": "shuffle", "by": "key", "partitions": 2}
    first, both = {**groups, "input": SOURCE, "when": "inputs.go"}, {**groups, "input": ["a", "first"]}
    assert set(segments(plan({"a": mapped(SOURCE), "first": first, "both": both}, **GO))) == {
        *("a", "first", "both.0", "both.1"),
        "both.out",
    }


# -- random documents ----------------------------------------------------------------------------------------------


Document = tuple[dict[str, Any], Mapping[str, list[str]]]
"""(stages, stage -> the stages whose data it reads)."""
OFTEN = ["map", "told", "ship"]
KINDS = ["batch", "total", "all", "groups", "range", "told all", "bounded", "join"]


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Stages that read earlier ones, wait for others, and are sometimes skipped."""
    stages: dict[str, Any] = {}
    reads: dict[str, list[str]] = {}
    for number in range(draw(st.integers(3, 8))):
        name, before = f"s{number}", sorted(stages)
        ships = [one for one in before if stages[one]["type"] == "broadcast"]
        source, other = draw(st.sampled_from(["", *before[-3:]])), draw(st.sampled_from(ships or ["", *before]))
        kind = draw(st.sampled_from(OFTEN * 5 + KINDS + ["barrier", "loop"] * bool(source)))
        stages[name] = _stage(kind, _data(stages, source), _data(stages, other), f"{name}in")
        reads[name] = [source, *([other] if _is_told(kind, stages, other) or kind == "join" else [])]
        if before and draw(st.integers(0, 2)) == 0:
            stages[name]["needs"] = [draw(st.sampled_from(before))]
        if draw(st.integers(0, 3)) == 0:
            stages[name]["when"] = "inputs.go"
    return stages, reads


def _data(stages: Mapping[str, Any], source: str) -> Any:
    if not source:
        return SOURCE
    return f"{source}.state.x" if stages[source]["type"] == "loop" else source


def _stage(kind: str, data: Any, other: Any, inner: str) -> dict[str, Any]:
    """`other` is a value if it is a broadcast. Otherwise it is another input, or absent."""
    value = {"with": {"v": f"${{{{ stages.{other} }}}}"}} if isinstance(other, str) and "." not in other else {}
    shuffle = {"type": "shuffle", "input": data, "by": "key", "partitions": 2}
    made: dict[str, dict[str, Any]] = {
        "map": mapped(data),
        "batch": mapped(data, batch={"maxBytes": "1KiB"}),
        "total": {**TOTAL, "input": data},
        "all": {"type": "reduce", "per": "all", "uses": "m:f", "input": data},
        "ship": {"type": "broadcast", "input": data},
        "groups": shuffle,
        "join": {**shuffle, "input": [data, other]},
        "range": {**shuffle, "partitioner": {"type": "range"}},
        "bounded": {**shuffle, "partitioner": {"type": "range", **({"boundaries": other} if value else {})}},
        "barrier": {"type": "barrier", "input": data},
        "told": mapped(data, **value),
        "told all": {**TOTAL, "input": data, "finish": "m:f", **value},
        "loop": {
            "type": "loop",
            "state": {"x": data},
            "maxIterations": 2,
            "stages": {inner: mapped("state.x")},
            "next": {"x": inner},
        },
    }
    return made[kind]


def _is_told(kind: str, stages: Mapping[str, Any], other: str) -> bool:
    return kind in ("told", "told all", "bounded") and other in stages and stages[other]["type"] != "loop"


@examples(400)
@given(documents())
def test_every_plan_ends_after_exactly_its_unskipped_stages(document: Document) -> None:
    stages, reads = document
    found = plan(stages, **GO)
    ended, started = run_to_end(found)
    assert ended
    skipped: set[str] = set()
    for name, sources in reads.items():
        if "when" in stages[name] or skipped.intersection(sources):
            skipped.add(name)
    for node in found.graph.nodes:
        own = set(node.stages) or {node.id.partition(".")[0]}
        if own - skipped and isinstance(node, Segment | LoopNode):
            assert node.id in started
        else:
            assert node.id not in started


# -- segments that only read a stage's input -----------------------------------------------------------------------


LOOP: dict[str, Any] = {"type": "loop", "maxIterations": 2, "stages": {"b": mapped("state.x")}, "next": {"x": "b"}}
BRINGING: dict[str, dict[str, Any]] = {
    "a.cut": mapped(SOURCE, batch={"maxBytes": "1KiB"}),
    "a.in": {**TOTAL, "combine": None, "uses": "m:f", "input": SOURCE},
    "a.x": {**LOOP, "state": {"x": "inputs.data"}},
}
DATA: dict[str, Any] = {"data": {"type": "dataset", "required": True}}


@pytest.mark.parametrize("node", BRINGING)
def test_what_brings_a_stage_its_input_waits_and_is_skipped_as_the_stage(node: str) -> None:
    stages = {"first": mapped(SOURCE), "a": {**BRINGING[node], "when": "inputs.go", "needs": ["first"]}}
    given: dict[str, Any] = {"inputs": GO["inputs"] | DATA, "given": GO["given"] | {"data": SOURCE}}
    found = plan(stages, **given)
    assert (segments(found)[node].when, segments(found)[node].after) == ("inputs.go", ("first",))
    assert run_to_end(found) == (True, {"first"})


def test_initial_data_of_a_loop_is_read_on_the_stages_executor_with_defaults() -> None:
    defaults = {"executor": "isolated", "retry": {"maximumAttempts": 7}}
    given: dict[str, Any] = {"inputs": DATA, "given": {"data": SOURCE}}
    policy = segments(plan({"a": BRINGING["a.x"]}, defaults=defaults, **given))["a.x"].policy
    assert (policy.executor, policy.maximum_attempts) == ("isolated", 7)


@pytest.mark.parametrize("node", ["a.cut", "a.in"])
def test_reading_may_be_repeated_though_the_stage_may_not(node: str) -> None:
    found = segments(plan({"a": {**BRINGING[node], "idempotent": False}}, site=SITE))
    assert (found[node].policy.idempotent, found["a"].policy.idempotent) == (True, False)


@pytest.mark.parametrize("cache", [False, True])
def test_files_of_a_skippable_stage_are_not_checked_before_the_run(cache: bool, tmp_path: Path) -> None:
    """This also holds if it is skipped because of its input, and if another segment writes the files."""
    (tmp_path / "_owner.json").write_text('{"run": "other"}')
    written = mapped("a", cache=cache, output={"uri": str(tmp_path), "format": "jsonl"})
    check(plan({"a": mapped(SOURCE, cache=cache, when="inputs.go"), "b": written}, **GO).graph, "r")
    with pytest.raises(UsageError, match="already holds the output of run other"):
        check(plan({"a": mapped(SOURCE, cache=cache), "b": written}).graph, "r")


# -- stages skipped with these inputs ------------------------------------------------------------------------------


EXTRA: dict[str, Any] = {"inputs": {"extra": {"type": "uri"}, "few": {"type": "list"}}}
NOTHING = {"extra": None, "few": None}
NUMBER = "${{ size(inputs.few) }}"
OPTIONAL: dict[str, dict[str, Any]] = {
    "no place": mapped({"uri": "${{ inputs.extra }}", "format": "text"}),
    "no file": mapped({"uri": "nothing-*.txt", "format": "text"}),
    "no list": mapped("inputs.few"),
    "no number": mapped({"range": "${{ size(inputs.few) }}"}),
    "no partitions": mapped({"range": 3, "partitions": "${{ size(inputs.few) }}"}),
    "no groups": {"type": "shuffle", "input": "first", "by": "key", "partitions": NUMBER},
    "no tree": {**TOTAL, "input": "first", "fanIn": NUMBER},
    "no chunks": mapped(SOURCE, batch={"maxItems": NUMBER}),
    "no tasks": mapped("first", maxConcurrency=NUMBER),
    "no iterations": {**LOOP, "state": {"x": "first"}, "maxIterations": NUMBER},
    "a gang of files": mapped({"uri": "nothing-*.txt", "format": "text"}, gang=2),
    "kept": mapped("inputs.few", cache=True),
    "loop": {**LOOP, "state": {"x": "inputs.few"}},
    "in a loop": {**LOOP, "state": {"x": "first"}, "stages": {"in": mapped("inputs.few")}, "next": {"x": "in"}},
    "workflow": {
        "type": "workflow",
        "with": {"file": "${{ inputs.extra }}"},
        "uses": {
            "apiVersion": "treadle/v1",
            "name": "inner",
            "inputs": {"file": {"type": "uri", "required": True}},
            "stages": {"c": mapped({"uri": "${{ inputs.file }}", "format": "text"})},
        },
    },
}


@pytest.mark.parametrize("stage", OPTIONAL.values(), ids=list(OPTIONAL))
def test_stage_skipped_by_the_given_inputs_needs_none_of_its_files(stage: dict[str, Any]) -> None:
    stages = {"first": mapped(SOURCE), "a": {**stage, "when": "has(inputs.extra)"}}
    found = plan(stages, given=NOTHING, **EXTRA)
    assert run_to_end(found) == (True, {"first"})
    assert "is skipped with these inputs" in str([node.reasons for node in found.graph.walk()])
    with pytest.raises(UsageError):
        plan(stages, given={**NOTHING, "extra": "missing.txt"}, **EXTRA)


def test_a_stage_that_is_skipped_with_these_inputs_needs_no_place_to_write_to() -> None:
    """Without the condition it is refused (see `test_missing_place_is_not_read_as_a_folder_of_that_name`)."""
    place = {"uri": "${{ inputs.extra }}"}
    a = mapped(SOURCE, output={**place, "format": "jsonl"}, toleratedFailures=1, failedItems=place)
    found = plan({"first": mapped(SOURCE), "a": {**a, "when": "has(inputs.extra)"}}, given=NOTHING, **EXTRA)
    assert run_to_end(found) == (True, {"first"})


def test_what_reads_a_stage_that_is_skipped_with_these_inputs_needs_nothing_either() -> None:
    """It reads by its input, by a value, by boundaries, and inside a loop."""
    groups = {**OPTIONAL["no groups"], "partitioner": {"type": "range", "boundaries": "ship"}}
    told = mapped("state.x", **{"with": {"value": "${{ stages.ship }}"}})
    stages = {
        "first": mapped(SOURCE),
        "ship": {"type": "broadcast", "input": "inputs.few", "when": "has(inputs.extra)"},
        "b": mapped("ship", batch={"maxItems": NUMBER}),
        "c": {**groups, "output": {"uri": "${{ inputs.extra }}", "format": "jsonl"}},
        "d": {**LOOP, "state": {"x": "first"}, "stages": {"in": told}, "next": {"x": "in"}, "maxIterations": NUMBER},
        "e": mapped("d.state.x", maxConcurrency=NUMBER),
    }
    assert run_to_end(plan(stages, given=NOTHING, **EXTRA)) == (True, {"first"})
    for name in "bcde":
        with pytest.raises(UsageError):
            plan({"first": stages["first"], "ship": mapped(SOURCE), name: stages[name]}, given=NOTHING, **EXTRA)


def test_an_excuse_ends_with_the_stage_that_has_it() -> None:
    stages = {"a": {**OPTIONAL["in a loop"], "when": "has(inputs.extra)"}, "first": mapped(SOURCE)}
    with pytest.raises(UsageError, match="no file matches"):
        plan({**stages, "b": mapped(OPTIONAL["no file"]["input"], needs=["a"])}, given=NOTHING, **EXTRA)


def test_unknown_condition_does_not_excuse_a_missing_file() -> None:
    waits = mapped(SOURCE, metrics={"n": "sum"})
    for when in ("stages.first.metrics.n > 1", "inputs.extra > 1", "1 < 2"):
        with pytest.raises(UsageError, match="no file matches"):
            plan({"first": waits, "a": {**OPTIONAL["no file"], "when": when}}, given=NOTHING, **EXTRA)
