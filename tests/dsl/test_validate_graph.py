"""Scopes, cycles and order between stages. No document, however broken, breaks the validator."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.dsl.diagnostics.diagnostics import Diagnostic
from treadle.dsl.diagnostics.formats import render
from treadle.dsl.document.document import InvalidDocument
from treadle.dsl.document.loader import load_yaml
from treadle.dsl.document.workflow_files import from_spec, load
from treadle.dsl.graph.graph import StageGraph, StateTarget
from treadle.dsl.graph.requirements import needs_first, topological
from treadle.dsl.validation.references import edges
from treadle.dsl.validation.validate import validate

GOOD = sorted((Path(__file__).parent / "golden" / "good").glob("*.yaml"))
HEAD = "apiVersion: treadle/v1\nname: flow\n"
ZEROS = "0" * 400


def found(stages: str, head: str = "") -> list[Diagnostic]:
    return validate(load(f"{HEAD}{head}stages:\n{stages}"))


def codes(stages: str, head: str = "") -> list[str]:
    return [diagnostic.code for diagnostic in found(stages, head)]


NESTED = """
  seed: {type: map, input: {range: 3}, uses: m:f}
  outer:
    type: loop
    state: {x: seed, n: 0}
    maxIterations: 2
    stages:
      before: {type: map, input: state.x, uses: m:f}
      inner:
        type: loop
        state: {x: state.x, y: before}
        maxIterations: 2
        stages:
          step: {type: map, input: state.x, uses: m:f, with: {n: "${{ state.n }}"}, needs: [seed]}
          other: {type: shuffle, input: [state.y, before, seed], by: key}
        next: {x: step, y: other}
        until: state.n > 1
    next: {x: inner.state.x, n: "${{ stages.inner.metrics.iterations }}"}
  after: {type: map, input: outer.state.x, uses: m:f, when: stages.outer.state.n > 0}
"""


def test_inner_stages_see_everything_around_them() -> None:
    assert found(NESTED) == []


def test_state_is_that_of_the_innermost_loop_that_has_the_name() -> None:
    graph = StageGraph(load(f"{HEAD}stages:\n{NESTED}").require())
    for name, owner in (("x", "inner"), ("y", "inner"), ("n", "outer")):
        target = graph.state(name, ("outer", "inner"))
        assert isinstance(target, StateTarget)
        assert target.loop.id == owner


def test_edges_lie_between_neighbours() -> None:
    graph = StageGraph(load(f"{HEAD}stages:\n{NESTED}").require())
    pairs = {(edge.source, edge.consumer) for edge in edges(graph)}
    assert pairs == {
        ("seed", "outer"),
        ("before", "inner"),
        ("outer", "after"),
    }


def test_circle_through_a_loop_is_found() -> None:
    (circle,) = found("""
  a: {type: map, input: l.state.x, uses: m:f, metrics: {n: sum}}
  s: {type: map, input: {range: 3}, uses: m:f}
  l:
    type: loop
    state: {x: s}
    maxIterations: 2
    stages: {b: {type: map, input: state.x, uses: m:f, when: stages.a.metrics.n > 0}}
    next: {x: b}
""")
    assert circle.code == "T103"
    assert "a → l → a" in circle.message


@pytest.mark.parametrize(
    "link",
    ["input: b", "input: {range: 3}, needs: [b]", "input: {range: 3}, when: stages.b.metrics.n > 1"],
)
def test_data_needs_and_conditions_all_order(link: str) -> None:
    stages = f"  a: {{type: map, uses: m:f, metrics: {{n: sum}}, {link}}}\n"
    stages += "  b: {type: map, uses: m:f, metrics: {n: sum}, input: a}\n"
    assert codes(stages) == ["T103"]


def test_broadcast_in_with_is_an_edge() -> None:
    stages = '  a: {type: map, uses: m:f, input: {range: 3}, with: {x: "${{ stages.b }}"}}\n'
    assert codes(stages + "  b: {type: broadcast, input: a}\n") == ["T103"]


def test_loop_that_starts_from_its_own_result_is_reported() -> None:
    body = "stages: {a: {type: map, input: state.x, uses: m:f}}"
    assert codes(f"  l: {{type: loop, state: {{x: l.state.x}}, maxIterations: 1, {body}}}\n") == ["T103"]


def test_barrier_passes_on_the_grouping_of_a_shuffle() -> None:
    stages = "  g: {type: shuffle, input: {items: [[a, 1]]}, by: key}\n  b: {type: barrier, input: g}\n"
    assert codes(stages + "  r: {type: reduce, input: b, per: key, combine: m:f}\n") == []


def test_stages_of_a_second_loop_with_the_same_id_are_not_checked() -> None:
    inner = "a: {type: loop, state: {x: 1}, maxIterations: 1, stages: {c: {type: map, input: state.x, uses: m:f}}}"
    outer = f"  b: {{type: loop, state: {{}}, maxIterations: 1, stages: {{{inner}}}}}\n"
    assert codes("  a: {type: map, input: {range: 1}, uses: m:f}\n" + outer) == ["T104"]


@pytest.mark.parametrize(
    "setting",
    [
        "timeout: 36501d",
        f"timeout: 1{ZEROS}ms",
        f"timeout: 1{2500 * ZEROS}s",
        "memory: 8388608TiB",
        f"memory: 1{ZEROS}B",
        f"memory: 1{2500 * ZEROS}B",
    ],
    ids=lambda setting: setting[:20],
)
def test_impossibly_large_quantity_is_reported(setting: str) -> None:
    stage = f"  a: {{type: map, input: {{range: 1}}, uses: m:f, {setting}}}\n"
    assert codes(stage) == ["T015"]
    assert codes(stage.replace("36501d", "36500d").replace("8388608T", "8388607T").replace(ZEROS, "")) == []


def test_a_long_chain_of_stages_is_followed_from_either_end() -> None:
    chain = [f"  s{i}: {{type: map, input: s{i + 1}, uses: m:f, cache: true}}\n" for i in range(1000)]
    chain.append("  s1000: {type: map, input: {range: 3}, uses: m:f}\n")
    gang = "  last: {type: map, input: s0, uses: m:f, gang: 4}\n"
    for stages in (chain, chain[::-1]):
        document = load(f"{HEAD}stages:\n{''.join(stages)}{gang}")
        assert {one.code for one in validate(document)} == {"T220", "T223", "T606"}
        order = topological(document.require().stages)
        assert order == [*(f"s{i}" for i in range(1000, -1, -1)), "last"]


def test_boundaries_ascend_however_large_they_are() -> None:
    huge = "1844674407370955161"
    for boundaries, found in ((f"1.5, {huge}", ["T602"]), (f"{huge}, 1.5", ["T207"]), (f"{huge}1, {huge}0", ["T207"])):
        ranged = f"partitions: 3, partitioner: {{type: range, boundaries: [{boundaries}]}}"
        assert codes(f"  a: {{type: shuffle, input: {{range: 3}}, by: m:f, {ranged}}}\n") == found


def test_needs_come_first_and_else_the_order_stays() -> None:
    assert needs_first({"a": ["d", "c"], "b": [], "c": ["b"], "d": ["gone"]}) == ["d", "b", "c", "a"]
    assert sorted(needs_first({"a": ["b"], "b": ["c"], "c": ["a", "c"]})) == ["a", "b", "c"]


def test_warnings_are_withheld_while_errors_exist() -> None:
    stages = "  a: {type: map, input: {range: 3}, uses: m:f}\n  b: {type: broadcast, input: a}\n"
    assert codes(stages) == ["T602"]
    assert codes(stages + "  c: {type: map, input: d, uses: m:f}\n") == ["T101"]


def test_spec_without_a_text_is_validated_by_path() -> None:
    spec = load(f"{HEAD}stages:\n  a: {{type: map, input: b, uses: m:f}}\n").require()
    (problem,) = validate(from_spec(spec))
    assert (problem.line, problem.where) == (0, "stages.a.input")
    assert "stages.a.input" in render([problem])


def test_requiring_a_broken_document_raises_its_findings() -> None:
    with pytest.raises(InvalidDocument, match="needs the key 'uses'") as caught:
        load(f"{HEAD}stages:\n  a: {{type: map, input: b}}\n", "flow.yaml").require()
    assert str(caught.value).startswith("flow.yaml:4:3: error[T011]")


def test_missing_file_is_a_finding(tmp_path: Path) -> None:
    (problem,) = validate(load(tmp_path / "gone.yaml"))
    assert problem.code == "T009"


# -- random documents --------------------------------------------------------------------------------------------

DATA = [load_yaml(path.read_text(encoding="utf-8")).data for path in GOOD]
WORDS = st.sampled_from(
    ["key", "all", "group", "${{ inputs.k }}", "${{ stages.ship }}", "state.centroids", "${{", "1h", "a:b", "load", ""]
)
VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-2, 3) | WORDS | st.lists(WORDS, max_size=2) | st.just({})
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in pairs for path in ((*here, key), *paths(item, (*here, key)))]


@settings(max_examples=150)
@given(st.data())
def test_changed_document_gives_findings_and_never_breaks_the_validator(data: st.DataObject) -> None:
    document = json.loads(json.dumps(data.draw(st.sampled_from(DATA))))
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(paths(document)))
        target = document
        for part in parents:
            target = target[part]
        if data.draw(st.booleans()):
            target[last] = data.draw(VALUES)
        elif isinstance(target, dict):
            target[data.draw(WORDS)] = target.pop(last)
        if not paths(document):
            return
    text = json.dumps(document, indent=1)
    problems = validate(load(text))
    assert render(problems, text) or not problems
    assert all(problem.line >= 1 for problem in problems)


@settings(max_examples=100)
@given(st.sampled_from(GOOD), st.integers(0, 2000), st.integers(0, 30), st.text(max_size=5))
def test_damaged_text_gives_findings_and_never_breaks_the_validator(
    path: Path, start: int, length: int, put: str
) -> None:
    text = path.read_text(encoding="utf-8")
    damaged = text[:start] + put + text[start + length :]
    assert all(problem.line >= 1 and problem.message for problem in validate(load(damaged)))


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("{type: reduce, input: {range: 1}, per: all, uses: m:f}", []),
        ("{type: reduce, input: {range: 1}, per: partition, uses: m:f}", ["T106"]),
        ("{type: map, input: {range: 1}, uses: m:f}", ["T106"]),
        ("{type: broadcast, input: {range: 1}}", ["T106"]),
    ],
)
@pytest.mark.parametrize("path", ["value", "value.deep.member"])
def test_only_a_reduce_over_everything_has_a_value(stage: str, expected: list[str], path: str) -> None:
    assert codes(f"  a: {stage}\n", f'outputs: {{x: "${{{{ stages.a.{path} }}}}"}}\n') == expected
