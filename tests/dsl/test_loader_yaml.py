"""The YAML 1.2 loader: the types of scalars, the positions, and the refusals."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl.diagnostics.diagnostics import Path, Span
from treadle.dsl.document.loader import MAX_CHARACTERS, LoadedDocument, load_yaml

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\u2028\u2029\ufeff"))
"""Characters that may be unescaped in JSON and in YAML."""
INTEGERS = st.integers(-(2**63), 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def data_of(text: str) -> Any:
    loaded = load_yaml(text)
    assert not loaded.problems, loaded.problems
    return loaded.data


def code_of(text: str) -> str:
    (problem,) = load_yaml(text).problems
    return problem.code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            (word, word)
            for word in ("on", "off", "yes", "no", "y", "n", "22:30", "2026-01-01", "1_000", "0b1", "1e", "=")
        ),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("NULL", None),
        ("nULL", "nULL"),
        ("1e-4", 1e-4),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("+12", 12),
        ("0o17", 15),
        ("017", 17),
        ("0xfF", 255),
        ("-0x1", "-0x1"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ("!!float 12", 12.0),
        ("! 12", "12"),
    ],
)
def test_plain_scalar_follows_the_core_schema(text: str, value: Any) -> None:
    found = data_of(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


@given(JSON)
def test_json_document_means_what_json_says(value: Any) -> None:
    found = data_of(json.dumps(value, ensure_ascii=False))
    assert json.dumps(found) == json.dumps(value)


@given(st.dictionaries(st.text(max_size=3), st.text()))
def test_escapes_of_json_are_read(value: dict[str, str]) -> None:
    assert data_of(json.dumps(value, ensure_ascii=True)) == value


@given(st.dictionaries(TEXT, INTEGERS | st.lists(INTEGERS, max_size=3), min_size=1, max_size=5))
def test_every_value_stands_where_its_place_says(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    loaded = load_yaml(text)
    for key, item in value.items():
        place = loaded.places[(key,)]
        assert place.key is not None
        assert json.loads(cut(text, place.key)) == key
        assert json.loads(cut(text, place.value)) == item


def cut(text: str, span: Span) -> str:
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_col - 1]
    lines[0] = lines[0][span.col - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_positions_do_not_depend_on_newlines_or_a_byte_order_mark(newline: str) -> None:
    text = "\ufeffa:\n  é: [1, two]\n".replace("\n", newline)
    assert load_yaml(text).places[("a", "é", 1)].value == Span(2, 10, 2, 13)


def inside(loaded: LoadedDocument, path: Path, part: str) -> Span:
    text = loaded.data
    for step in path:
        text = text[step]
    start = text.index(part)
    return loaded.places[path].inside(text, start, start + len(part))


def test_span_inside_a_text_points_at_its_characters() -> None:
    loaded = load_yaml("plain: ab cd\nquoted: 'ab cd'\nescaped: \"a\\x62 cd\"\nblock: |\n  ab\n  cd\n")
    assert inside(loaded, ("plain",), "cd") == Span(1, 11, 1, 13)
    assert inside(loaded, ("quoted",), "cd") == Span(2, 13, 2, 15)
    assert inside(loaded, ("escaped",), "cd") == loaded.places[("escaped",)].value
    assert inside(loaded, ("block",), "cd") == loaded.places[("block",)].value


def test_alias_means_its_anchor_and_keeps_its_own_place() -> None:
    loaded = load_yaml("a: &x {k: 1}\nb: *x\n")
    assert loaded.data == {"a": {"k": 1}, "b": {"k": 1}}
    assert loaded.places[("b",)].value == Span(2, 4, 2, 6)
    assert loaded.places[("b", "k")].value.line == 1


def test_anchored_mappings_do_not_share_their_data() -> None:
    data = data_of("a: &x {k: 1}\nb: *x\n")
    data["a"]["k"] = 2
    assert data["b"]["k"] == 1


def test_merge_key_gives_defaults_and_the_first_of_several_counts() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\nd: &d {<<: *b, w: 3}\ne: {<<: *d}\n"
    data = data_of(text)
    assert data["c"] == {"x": 0, "y": 1, "z": 2}
    assert data["e"] == {"w": 3, "y": 2, "z": 2}


def test_quoted_merge_key_is_an_ordinary_key() -> None:
    assert data_of('a: {"<<": 1}') == {"a": {"<<": 1}}


def test_every_repeated_key_is_reported_with_the_first() -> None:
    problems = load_yaml("a: 1\nb: {c: 1, c: 2}\na: 2\n").problems
    assert [(problem.code, problem.span.line) for problem in problems] == [("T003", 3), ("T003", 2)]
    assert "line 1, column 1" in problems[0].message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &x [*x]", "T008"),
        ("a: .nan", "T010"),
        ("a: 1e999", "T010"),
        ("a: !!int x", "T007"),
        ("a: !!set {x}", "T007"),
        ("a: !!binary aGk=", "T007"),
        ("? [1]\n: 2", "T006"),
        ("null: 1", "T006"),
        ("# only a comment", "T005"),
        ("--- 1\n--- 2", "T005"),
        ("[" * 100_000, "T004"),
        ("a: " + "x" * MAX_CHARACTERS, "T004"),
        ("x: &x 1\ny: [" + "*x, " * 1001 + "]", "T004"),
    ],
)
def test_document_is_refused(text: str, code: str) -> None:
    assert code_of(text) == code


def test_billion_laughs_are_refused_fast() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    start = time.thread_time()
    assert code_of("\n".join(lines)) == "T004"
    assert time.thread_time() - start < 1


def test_deep_aliases_are_refused() -> None:
    lines = ["a0: &a0 x", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
    assert code_of("\n".join(lines)) == "T004"


@given(st.text(max_size=200) | st.text("abc:{}[]&*!|>%@\"'#-? \t\n$,<~", max_size=60))
def test_no_text_breaks_the_loader(text: str) -> None:
    loaded = load_yaml(text)
    assert loaded.problems or () in loaded.places
    assert all(problem.span.line >= 1 and problem.span.col >= 1 for problem in loaded.problems)
