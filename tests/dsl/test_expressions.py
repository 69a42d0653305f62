from __future__ import annotations

import math
import operator
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.dsl.expressions import (
    Binary,
    BuiltinCall,
    Expr,
    ExpressionError,
    Literal,
    Path,
    Type,
    Unary,
    check,
    evaluate,
    parse,
    paths,
    unparse,
)
from treadle.dsl.expressions.nodes import MAX_BITS, MAX_DEPTH, MAX_LENGTH

ENV: dict[str, Any] = {
    "inputs": {"k": 8, "tol": 1e-4, "name": "abc", "on": True, "names": ["a", "b"], "sizes": [3, 1.5, 2], "none": []},
    "stages": {"done": {"metrics": {"shift": 0.5}, "output": {"uri": "out/x"}}, "skipped": None},
    "run": {"id": "r1", "startTime": "2026-01-01T00:00:00Z"},
}
SCOPE: dict[str, Any] = {
    "inputs": {"k": Type.INT, "tol": Type.FLOAT, "name": Type.STRING, "on": Type.BOOL, "names": Type.LIST},
    "stages": {"done": {"metrics": {"shift": Type.FLOAT}}},
    "trigger": Type.UNKNOWN,
}

# -- strategies ----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["inputs.k", "inputs.tol", "inputs.name", "inputs.on", "stages.skipped.metrics.m", "inputs.no"])
PATHS = NAMES.map(lambda name: Path(tuple(name.split("."))))
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(0, 10**20)
    | st.floats(0, 1e300, allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
OPERATORS = ["||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/"]


def _deeper(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    arguments = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return (
        st.builds(Unary, st.sampled_from("!-"), inner)
        | st.builds(Binary, st.sampled_from(OPERATORS), inner, inner)
        | st.builds(BuiltinCall, st.sampled_from(["min", "max"]), arguments)
        | st.builds(BuiltinCall, st.just("size"), st.tuples(inner))
        | st.builds(BuiltinCall, st.just("has"), st.tuples(PATHS))
    )


EXPRESSIONS: st.SearchStrategy[Expr] = st.recursive(st.builds(Literal, VALUES) | PATHS, _deeper, max_leaves=12)
NUMERIC: st.SearchStrategy[Expr] = st.recursive(
    st.builds(Literal, st.integers(0, 1000) | st.floats(0, 1000)),
    lambda inner: st.builds(Unary, st.just("-"), inner) | st.builds(Binary, st.sampled_from("+-*/"), inner, inner),
    max_leaves=10,
)
LOGICAL: st.SearchStrategy[Expr] = st.recursive(
    st.builds(Binary, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMERIC, NUMERIC),
    lambda inner: (
        st.builds(Unary, st.just("!"), inner) | st.builds(Binary, st.sampled_from(["&&", "||"]), inner, inner)
    ),
    max_leaves=6,
)


def refusal_offset(text: str) -> int:
    """The offset at which parsing stops. 0: it does not stop."""
    try:
        parse(text)
    except ExpressionError as error:
        return error.offset
    return 0


# -- text and tree -------------------------------------------------------------------------------------------------


@given(EXPRESSIONS)
def test_printed_expression_parses_back_to_the_same_tree(expr: Expr) -> None:
    assert parse(unparse(expr)) == expr


@given(st.text(max_size=60) | st.text("()!-+*/<>=&|.,'\"\\ 0189aeEminhas{}$", max_size=60))
def test_any_text_is_parsed_or_refused_inside_the_text(text: str) -> None:
    assert 0 <= refusal_offset(text) <= len(text)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, "expected a value, got the end"),
        ("1 +", 3, "expected a value, got the end"),
        ("1 + )", 4, "expected a value, got ')'"),
        ("min('a', ')'", 12, "expected ')', got the end"),
        ("size('a' ')')", 9, "expected ')', got \"')'\""),
        ("a.b c", 4, "expected an operator"),
        ("a = b", 2, "'=' is not part of the language"),
        ("a and b", 2, "expected an operator, got 'and'"),
        ("not a", 0, "'not' is not part of the language"),
        ("'abc", 0, "no closing quote"),
        ("1 < 2 < 3", 6, "comparisons do not chain"),
        ("now()", 0, "no function 'now'"),
        ("has(1)", 4, "has() takes a path"),
        ("size(a, b)", 0, "one argument"),
        ("(1", 2, "expected ')'"),
        ("007", 0, "may not begin with 0"),
        ("1e999", 0, "too large"),
        (r"'\q'", 1, "unknown escape"),
        (r"'\ud7ff\ud800'", 7, "unknown escape"),
        (r"'\ue000\udfff'", 7, "unknown escape"),
        ("1 + " + "9" * (MAX_BITS // 3), 4, f"more than {MAX_BITS} bits"),
        ("inputs.k }}", 9, "expected an operator, got '}}'"),
        ("inputs.", 7, "expected a name"),
    ],
)
def test_refusal_points_at_the_first_thing_that_cannot_be_read(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.offset == offset
    assert message in caught.value.message


def test_wrong_words_are_answered_with_the_right_ones() -> None:
    for text, hint in [("a and b", "&&"), ("a = b", "=="), ("True", "true"), ("not a", "!"), ("a & b", "&&")]:
        with pytest.raises(ExpressionError) as caught:
            parse(text)
        assert hint in caught.value.hint


@pytest.mark.parametrize("text", ["(" * 5000 + "1", "!" * 5000 + "true", "-" * 4000 + "1", "1" + "+1" * 2000])
def test_deep_or_long_text_is_refused_quickly(text: str) -> None:
    start = time.thread_time()
    with pytest.raises(ExpressionError, match=r"deeper|longer"):
        parse(text)
    assert time.thread_time() - start < 1


def test_limits_admit_expressions_up_to_their_value() -> None:
    assert evaluate(parse("+".join(["1"] * MAX_DEPTH)), {}) == MAX_DEPTH
    with pytest.raises(ExpressionError, match="deeper"):
        parse("+".join(["1"] * (MAX_DEPTH + 1)))
    assert parse(" " * (MAX_LENGTH - 1) + "1") == Literal(1)
    with pytest.raises(ExpressionError, match="longer"):
        parse(" " * MAX_LENGTH + "1")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("8 - 2 - 1", "(8 - 2) - 1"),
        ("8 / 2 / 2", "(8 / 2) / 2"),
        ("-1 + 2", "(-1) + 2"),
        ("-inputs.k * 2", "(-inputs.k) * 2"),
        ("!inputs.on == false", "(!inputs.on) == false"),
        ("true || false && false", "true || (false && false)"),
        ("1 + 1 == 2 && 3 > 2", "((1 + 1) == 2) && (3 > 2)"),
    ],
)
def test_operators_bind_as_in_c(text: str, meaning: str) -> None:
    assert parse(text) == parse(meaning)


def test_paths_are_all_names_mentioned() -> None:
    expr = parse("has(stages.a.metrics.m) && inputs.k + size(inputs.names) < max(1, state.x)")
    assert paths(expr) == {("stages", "a", "metrics", "m"), ("inputs", "k"), ("inputs", "names"), ("state", "x")}


# -- values --------------------------------------------------------------------------------------------------------

_PYTHON = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def oracle(expr: Expr) -> Any:
    """The expression evaluated by Python's own operators."""
    match expr:
        case Literal(value):
            return value
        case Unary("-", operand):
            return -oracle(operand)
        case Unary(_, operand):
            return not oracle(operand)
        case Binary("&&", left, right):
            return oracle(left) and oracle(right)
        case Binary("||", left, right):
            return oracle(left) or oracle(right)
        case Binary(symbol, left, right):
            value = _PYTHON[symbol](oracle(left), oracle(right))
            if isinstance(value, float) and not math.isfinite(value):
                raise OverflowError
            return value
    raise AssertionError(expr)


@given(NUMERIC | LOGICAL)
def test_numbers_and_logic_agree_with_python(expr: Expr) -> None:
    try:
        expected = oracle(expr)
    except (ZeroDivisionError, OverflowError):
        with pytest.raises(ExpressionError, match=r"division by zero|too large"):
            evaluate(expr, {})
        return
    found = evaluate(expr, {})
    assert (type(found), found) == (type(expected), expected)


@given(EXPRESSIONS)
def test_evaluation_gives_a_json_value_or_an_expression_error(expr: Expr) -> None:
    try:
        value = evaluate(expr, ENV)
    except ExpressionError:
        return
    assert isinstance(value, (bool, int, float, str, type(None), list))
    if isinstance(value, float):
        assert math.isfinite(value)


@given(EXPRESSIONS)
def test_what_checks_evaluates_to_the_type_promised(expr: Expr) -> None:
    scope: Mapping[str, Any] = {**SCOPE, "stages": {"skipped": Type.NULL}}
    try:
        promised = check(expr, scope)
        value = evaluate(expr, ENV)
    except ExpressionError:
        assume(False)
    names: dict[type, set[Type]] = {
        bool: {Type.BOOL}, int: {Type.INT, Type.FLOAT}, float: {Type.FLOAT}, str: {Type.STRING},
        type(None): {Type.NULL}, list: {Type.LIST},
    }  # fmt: skip
    assert promised in names[type(value)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs.k / 4", 2.0),
        ("2 * 10000000000000000000000", 2 * 10**22),
        ("0.1 + 1", 1.1),
        ("stages.done.output.uri", "out/x"),
        ("inputs.name + '-' + run.id", "abc-r1"),
        ("size(inputs.names) + size(inputs.name)", 5),
        ("min(inputs.sizes)", 1.5),
        ("max(1, 1.0)", 1),
        ("max(1, 2, inputs.k)", 8),
        ("stages.skipped.metrics.m == null", True),
        ("has(stages.skipped)", False),
        ("has(stages.skipped.metrics.m) && stages.skipped.metrics.m > 1", False),
        ("has(stages.done)", True),
        ("has(stages.nowhere)", False),
        ("true || 1 / 0 > 1", True),
        ("1 == 1.0", True),
        ("1 == '1'", False),
        ("true == 1", False),
        ("9007199254740993 == 9007199254740992.0", False),
        ("'Z' < 'a'", True),
        ("'\\u00e9' > 'z'", True),
        (r"'a\n\t\\\'' + " + r'"\""', "a\n\t\\'\""),
    ],
)
def test_value_of(text: str, value: Any) -> None:
    found = evaluate(parse(text), ENV)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"a": [1, {"b": None}]}, {"a": (1.0, {"b": None})}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ([1, 2], [1], False),
        ([1], [1, 2], False),
        ([], {}, False),
        ([1, False], [1, 0], False),
    ],
)
def test_lists_and_objects_are_equal_when_all_within_them_is(left: Any, right: Any, same: bool) -> None:
    env = {"inputs": {"left": left, "right": right}}
    assert evaluate(parse("inputs.left == inputs.right"), env) is same
    assert evaluate(parse("inputs.left != inputs.right"), env) is not same


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("1 + 4 / 0", 6, "division by zero"),
        ("4 / 0.0", 2, "division by zero"),
        ("1 < stages.skipped.metrics.m", 4, "null has no order"),
        ("1 + stages.skipped.metrics.m", 4, "expected a number, got null"),
        ("inputs.k && true", 0, "expected true or false, got int"),
        ("true && 'a'", 8, "expected true or false, got string"),
        ("1 + 'a'", 4, "expected a number, got string"),
        ("1 + true", 4, "expected a number, got bool"),
        ("true < false", 0, "bool has no order"),
        ("1 < 'a'", 2, "cannot compare int with string"),
        ("'a' >= 1", 4, "cannot compare string with int"),
        ("!1", 1, "expected true or false"),
        ("1 + inputs.nope", 4, "there is no inputs.nope"),
        ("size(3)", 5, "int has no size"),
        ("max(inputs.none)", 4, "empty list"),
        ("1e300 * 1e300", 6, "too large"),
        ("min(1, 'a')", 7, "expected a number"),
    ],
)
def test_error_stands_at_its_position(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(parse(text), ENV)
    assert caught.value.offset == offset
    assert message in caught.value.message


def test_integers_are_exact_up_to_the_limit_and_refused_beyond() -> None:
    half = 2 ** (MAX_BITS // 2)
    assert evaluate(parse(f"{half} * {half // 2}"), {}) == half * half // 2
    with pytest.raises(ExpressionError, match="bits"):
        evaluate(parse(f"{half} * {half}"), {})
    with pytest.raises(ExpressionError, match="too large for a float"):
        evaluate(parse(f"{half} * 1.5"), {})


def test_null_comparison_detects_skipped_stages() -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(parse("stages.skipped.metrics.m > 1"), ENV)
    assert "has(" in caught.value.hint


# -- types ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("inputs.k + 1", Type.INT),
        ("inputs.k / 2", Type.FLOAT),
        ("inputs.k < inputs.tol", Type.BOOL),
        ("stages.done.metrics.shift != null", Type.BOOL),
        ("trigger.time.date", Type.UNKNOWN),
        ("trigger.time.date + 'x'", Type.STRING),
        ("size(inputs.names)", Type.INT),
        ("has(stages.done)", Type.BOOL),
        ("'a' + 'b'", Type.STRING),
        ("min(1, 2)", Type.INT),
        ("min(1, inputs.tol)", Type.FLOAT),
        ("max(inputs.names)", Type.FLOAT),
        ("-inputs.k * 2", Type.INT),
        ("-inputs.tol", Type.FLOAT),
        ("inputs.k - inputs.tol", Type.FLOAT),
        ("trigger.count - 1", Type.FLOAT),
        ("null", Type.NULL),
    ],
)
def test_type_of(text: str, kind: Type) -> None:
    assert check(parse(text), SCOPE) is kind


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("inputs.kk + 1", 0, "there is no inputs.kk"),
        ("1 + inputs.name", 4, "expected a number, got string"),
        ("inputs.name - 'a'", 0, "expected a number, got string"),
        ("trigger.name * 'a'", 15, "expected a number, got string"),
        ("max(inputs.names, 1)", 4, "expected a number, got list"),
        ("inputs.name < 3", 12, "string and int cannot be compared"),
        ("inputs.name == 3", 12, "string and int cannot be compared"),
        ("inputs.on && inputs.k", 13, "expected true or false, got int"),
        ("stages.done == 1", 0, "stages.done is not a value"),
        ("inputs.k.x", 0, "inputs.k is of type int"),
        ("state.x", 0, "there is no state"),
        ("1 < null", 4, "null has no order"),
        ("has(stages.dome)", 4, "there is no stages.dome"),
    ],
)
def test_type_error_stands_at_its_position(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(parse(text), SCOPE)
    assert caught.value.offset == offset
    assert message in caught.value.message


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ExpressionError) as caught:
        check(parse("inputs.nmae"), SCOPE)
    assert caught.value.hint == "did you mean name?"


@pytest.mark.parametrize("text", ["stages.nowhere", "stages.nowhere.metrics.m", "has(stages.nowhere.metrics)"])
def test_unknown_name_is_quoted_up_to_its_first_unknown_part(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(parse(text), SCOPE)
    assert (caught.value.message, caught.value.hint) == ("there is no stages.nowhere", "there are done")
