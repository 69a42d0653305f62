from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl import templates
from treadle.dsl.document.workflow_files import load
from treadle.dsl.expressions import Expr, ExpressionError, Path, unparse
from treadle.dsl.expressions.parse_cache import MAX_CACHED
from treadle.dsl.expressions.parser import parse_embedded
from treadle.dsl.templates import parse_template, render, template_paths, whole

ENV: dict[str, Any] = {"inputs": {"k": 8, "tol": 1e-4, "on": True, "name": "abc", "list": [1, 2], "no": None}}
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text().filter(lambda s: "${{" not in s),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_value_without_templates_renders_to_itself(value: Any) -> None:
    assert render(value, {}) == value


@pytest.mark.parametrize("name", ["k", "tol", "on", "name", "list", "no"])
def test_whole_value_expression_keeps_its_type(name: str) -> None:
    found = render({"a": [f"${{{{ inputs.{name} }}}}"]}, ENV)["a"][0]
    assert found == ENV["inputs"][name]
    assert type(found) is type(ENV["inputs"][name])


def test_embedded_expression_becomes_text() -> None:
    text = "n=${{inputs.k}} t=${{ inputs.tol }} o=${{ inputs.on }} s=${{ inputs.name }}, }} and $ stay"
    assert render(text, ENV) == "n=8 t=0.0001 o=true s=abc, }} and $ stay"


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_embedded_number_is_its_json(number: float) -> None:
    assert render("x${{ a }}", {"a": number}) == "x" + json.dumps(number)


@pytest.mark.parametrize("name", ["list", "no"])
def test_list_or_null_inside_a_text_is_refused_at_its_position(name: str) -> None:
    with pytest.raises(ExpressionError, match="cannot become text") as caught:
        render(f"a ${{{{ inputs.{name} }}}}", ENV)
    assert caught.value.offset == 6


def test_closing_braces_inside_a_string_do_not_end_the_expression() -> None:
    assert render("${{ '}}' }}", {}) == "}}"
    assert render("a${{ '${{' }}b", {}) == "a${{b"


@pytest.mark.parametrize(("text", "offset"), [("ab ${{ inputs.k", 15), ("${{ }}", 4), ("x ${{ 1 }} ${{ 1 + }}", 19)])
def test_broken_template_is_refused_at_its_position(text: str, offset: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(text)
    assert caught.value.offset == offset


def test_space_around_the_delimiters_makes_text() -> None:
    assert whole("${{ inputs.k }}") == Path(("inputs", "k"))
    assert whole(" ${{ inputs.k }}") is None
    assert whole("inputs.k") is None
    assert whole("") is None


def test_expressions_are_found_wherever_they_stand() -> None:
    value = {"a": ["x", "${{ inputs.k }}"], "b": "${{ 1 }}-${{ run.id }}"}
    pieces = [piece for text in ("x", "${{ inputs.k }}", value["b"]) for piece in parse_template(str(text))]
    assert [unparse(piece) for piece in pieces if not isinstance(piece, str)] == ["inputs.k", "1", "run.id"]
    assert template_paths(value) == {("inputs", "k"), ("run", "id")}


def test_template_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str, start: int) -> tuple[Expr, int]:
        parsed.append(text)
        return parse_embedded(text, start)

    monkeypatch.setattr(templates, "parse_embedded", parse)
    text = "${{ inputs.once }} and ${{ inputs.twice }}"
    for _ in range(3):
        assert template_paths([text, {"a": text}]) == {("inputs", "once"), ("inputs", "twice")}
        assert render(text, {"inputs": {"once": 1, "twice": 2}}) == "1 and 2"
    assert parsed == [text, text]


def test_templates_are_right_when_more_were_parsed_than_are_kept() -> None:
    for _ in range(2):
        for number in range(3):
            text = "x" * (MAX_CACHED // 2) + f"${{{{ inputs.k{number} }}}}"
            assert template_paths(text) == {("inputs", f"k{number}")}


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("a ${{ inputs.k", 14, "the expression has no closing }}"),
        ("a ${{ inputs.k b }}", 15, "expected an operator, got 'b'"),
        ("${{ inputs.k } }}", 13, "'}' is not part of the language"),
    ],
)
def test_unterminated_template_is_reported_at_its_place(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(text)
    assert (caught.value.offset, caught.value.message) == (offset, message)


HEAD = "apiVersion: treadle/v1\nname: w\ninputs: {x: {type: integer, default: 1}}\n"
MAP = "type: map, uses: 'm:f', input: {range: 1}"
READ = "${{ inputs.x }} "


def texts(count: int) -> str:
    return f"stages: {{a: {{{MAP}, with: {{" + ", ".join(f"k{i}: '{READ}'" for i in range(count)) + "}}}"


def one_text(count: int) -> str:
    return f"stages: {{a: {{{MAP}, with: {{k: '{READ * count}'}}}}}}"


def conditions(count: int) -> str:
    return "stages: {" + ", ".join(f"a{i}: {{{MAP}, when: '{'1 < 2 || ' * 99}true'}}" for i in range(count)) + "}"


def aliases(count: int) -> str:
    written = ", ".join(f"k{i}: *long" for i in range(count))
    return f"x-long: &long '{READ * 100}'\nstages: {{a: {{{MAP}, with: {{{written}}}}}}}"


@pytest.mark.parametrize(
    ("document", "count"), [(texts, 15_000), (one_text, 15_000), (conditions, 270), (aliases, 150)]
)
def test_document_with_too_many_expressions_is_refused(document: Callable[[int], str], count: int) -> None:
    assert not load(HEAD + document(count)).problems
    (problem,) = load(HEAD + document(2 * count)).problems
    assert problem.code == "T004"
    assert "250,000 are allowed" in problem.message
