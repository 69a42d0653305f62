"""Lists and texts in expressions: positions, `in`, `contains`, `startsWith`, `endsWith`, `matches`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl.expressions import (
    Array,
    Binary,
    BuiltinCall,
    Expr,
    ExpressionError,
    Index,
    Literal,
    Path,
    Type,
    check,
    evaluate,
    parse,
    paths,
    unparse,
)
from treadle.dsl.expressions.nodes import MAX_PATTERN, MAX_TEXT

ENV: dict[str, Any] = {
    "event": {
        "type": "com.acme.order.created.v1",
        "subject": None,
        "headers": {"x-shop": "paris", "in": "a"},
        "data": {
            "lines": [{"sku": "a1", "tags": ["new"]}, {"sku": "b2"}],
            "note": "a.b",
            "n": 2,
            "grid": [[1, 2], [3]],
        },
    }
}
SCOPE: dict[str, Any] = {
    "event": {"type": Type.STRING, "subject": Type.STRING, "data": Type.UNKNOWN, "headers": Type.UNKNOWN},
    "inputs": {"names": Type.LIST, "n": Type.INT},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("event.data.lines[0].sku", "a1"),
        ("event.data.lines[-1].sku", "b2"),
        ('event.data["lines"][0]["tags"][0]', "new"),
        ("event.data.grid[0][1]", 2),
        ('event.headers["x-shop"]', "paris"),
        ("event.headers.in", "a"),
        ("event.subject[0].x", None),
        ("has(event.data.lines[5])", False),
        ("has(event.data.lines[1].tags)", False),
        ("has(event.data.lines[1].sku)", True),
        ("event.type in ['a', \"com.acme.order.created.v1\"]", True),
        ("event.data.n in [1, 2.0]", True),
        ("true in [1]", False),
        ("1 in []", False),
        ("'sku' in event.data.lines[0]", True),
        ("[1] in event.data.grid", False),
        ("[3] in event.data.grid", True),
        ("!(1 in [2]) && 1 in [1]", True),
        ("contains(event.data.note, '.')", True),
        ("contains([1, 2], 3)", False),
        ("contains(event.data.lines[0].tags, 'new')", True),
        ("startsWith(event.type, 'com.acme.')", True),
        ("endsWith(event.type, '.v2')", False),
        ("matches(event.type, '^com[.][a-z]+[.]')", True),
        ("matches(event.type, 'created$')", False),
        ("matches('ÄÖ', '(?i)^äö$')", True),
        ("size([1, 2]) + max([3, 4])", 6),
        ("[event.data.n, 'x']", [2, "x"]),
    ],
)
def test_value_of(text: str, value: Any) -> None:
    found = evaluate(parse(text), ENV)
    assert (type(found), found) == (type(value), value)
    assert parse(unparse(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("1 == event.data.lines[2].sku", 5, "there is no event.data.lines[2]"),
        ("event.data.lines[-3]", 0, "there is no event.data.lines[-3]"),
        ("event.data.note[0]", 0, "there is no event.data.note[0]"),
        ('event.headers["x-other"]', 0, 'there is no event.headers["x-other"]'),
        ("'a' in event.data.note", 7, "expected a list or an object, got string"),
        ("'a' in event.subject", 7, "expected a list or an object, got null"),
        ("contains(event.data.note, 1)", 26, "expected a string, got int"),
        ("startsWith(event.subject, 'a')", 11, "expected a string, got null"),
        ("matches(event.data.n, 'a')", 8, "expected a string, got int"),
        ("matches('a', '(')", 13, "missing ): ("),
    ],
)
def test_error_of_a_value_stands_at_its_position(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(parse(text), ENV)
    assert (caught.value.offset, caught.value.message[: len(message) + 20]) == (offset, caught.value.message[:200])
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("a[", 2, "expected a position or a name, got the end"),
        ("a[b]", 2, "expected a position or a name, got 'b'"),
        ("a[-'x']", 3, "expected a position or a name"),
        ("a[1.5]", 2, "expected a position or a name"),
        ("a[1", 3, "expected ']', got the end"),
        ("[1, 2", 5, "expected ']', got the end"),
        ("[1 2]", 3, "expected ']', got '2'"),
        ("in [1]", 0, "expected a value, got 'in'"),
        ("1 in [1] in [true]", 9, "comparisons do not chain"),
        ("contains('a')", 0, "contains() takes two arguments"),
        ("matches('a', event.type)", 13, "must be a text in quotes"),
        ("matches('a', 1)", 13, "must be a text in quotes"),
        (f"matches('a', '{'a' * (MAX_PATTERN + 1)}')", 13, f"longer than {MAX_PATTERN}"),
        ("has([1])", 4, "has() takes a path"),
    ],
)
def test_text_that_cannot_be_read_is_refused_at_its_position(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.offset == offset
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("inputs.names[0]", Type.UNKNOWN),
        ("event.data.lines[0].sku == 'a'", Type.BOOL),
        ("event.type in ['a', null]", Type.BOOL),
        ("event.data.n in inputs.names", Type.BOOL),
        ("contains(inputs.names, inputs.n)", Type.BOOL),
        ("matches(event.subject, 'a+')", Type.BOOL),
        ("[1]", Type.LIST),
        ("has(event.data.lines[0])", Type.BOOL),
    ],
)
def test_type_of(text: str, kind: Type) -> None:
    assert check(parse(text), SCOPE) is kind


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ("event.heders['a']", 0, "there is no event.heders", "did you mean headers?"),
        ("event.type[0]", 0, "event.type is of type string, it has no [0]", ""),
        ("has(inputs.n[0])", 4, "inputs.n is of type int, it has no [0]", ""),
        ("event.type in ['a', 1]", 20, "string and int cannot be compared", ""),
        ("'a' in event.type", 7, "expected a list or an object, got string", "contains(text, part)"),
        ("contains(event.type, 1)", 21, "expected a string, got int", ""),
        ("contains(inputs.n, 1)", 9, "expected a string or a list, got int", ""),
        ("startsWith(inputs.names, 'a')", 11, "expected a string, got list", ""),
        ("matches(event.type, '(?=a)')", 20, "invalid perl operator: (?=", "RE2"),
        ("matches(event.type, '((a{1,1000}){1,1000}')", 20, "matches(): ", "RE2"),
        ("matches(event.type, '[^é]{1,900}[^è]{1,900}[^à]{1,900}')", 20, "pattern too large", "RE2"),
        ("contains(event.typ, 'a')", 9, "there is no event.typ", "did you mean type?"),
    ],
)
def test_type_error_stands_at_its_position(text: str, offset: int, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(parse(text), SCOPE)
    assert caught.value.offset == offset
    assert message in caught.value.message
    assert hint in caught.value.hint


NAMES = st.sampled_from(["a", "in", "x-shop", "", 'q"', "true", "0"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda rest: Path(("event", *rest)))
INDEXES = st.builds(
    Index,
    PATHS,
    st.tuples(st.integers(-3, 3)).flatmap(
        lambda at: st.lists(st.integers(-3, 3) | NAMES).map(lambda rest: (*at, *rest))
    ),
)
EXPRESSIONS: st.SearchStrategy[Expr] = st.recursive(
    PATHS
    | INDEXES
    | st.builds(Literal, st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.integers(0, 9)),
    lambda inner: (
        st.builds(Array, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Binary, st.sampled_from(["in", "==", "&&", "+"]), inner, inner)
        | st.builds(BuiltinCall, st.sampled_from(["contains", "startsWith", "endsWith"]), st.tuples(inner, inner))
        | st.builds(lambda text: BuiltinCall("matches", (text, Literal("a+"))), inner)
        | st.builds(lambda path: BuiltinCall("has", (path,)), PATHS | INDEXES)
    ),
    max_leaves=10,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "in", "\ud800", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_printed_expression_parses_back_to_the_same_tree(expr: Expr) -> None:
    assert parse(unparse(expr)) == expr


@given(EXPRESSIONS, JSON)
def test_evaluation_gives_a_value_or_an_expression_error(expr: Expr, value: Any) -> None:
    try:
        found = evaluate(expr, {"event": {"a": value, "in": value}})
    except ExpressionError:
        return
    assert found is None or isinstance(found, bool | int | str | list | dict)


def test_paths_below_positions_are_mentioned() -> None:
    expr = parse("event.data.lines[0].sku in [inputs.a] && has(stages.s.x[1])")
    assert paths(expr) == {("event", "data", "lines"), ("inputs", "a"), ("stages", "s", "x")}


@pytest.mark.parametrize("text", ["1 in [" * 40 + "1" + "]" * 40, "contains([" * 40 + "1" + "], 1)" * 40])
def test_nested_lists_are_looked_at_once(text: str) -> None:
    """Evaluating each level twice would never end."""
    expr = parse(text)
    with pytest.raises(ExpressionError, match="cannot be compared"):
        check(expr, {})
    assert evaluate(expr, {}) in (True, False)


def test_patterns_take_time_that_is_linear_in_the_text() -> None:
    """An engine with backtracking would never end."""
    env = {"event": {"data": "a" * (MAX_TEXT - 1) + "!", "long": "a" * (MAX_TEXT + 1)}}
    for pattern in ("^(a+)+$", "^(a|aa)+$", "(a*)*b", "a{0,500}b"):
        assert evaluate(parse(f"matches(event.data, '{pattern}')"), env) is False
    with pytest.raises(ExpressionError, match="longer than 65536 characters"):
        evaluate(parse("matches(event.long, 'a')"), env)
