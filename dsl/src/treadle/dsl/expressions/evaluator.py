"""Evaluates expressions. Every error carries the offset of its cause."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .nodes import (
    MAX_BITS,
    MAX_TEXT,
    Array,
    Binary,
    BuiltinCall,
    Expr,
    ExpressionError,
    Index,
    Literal,
    Path,
    Unary,
    spelt,
)
from .regex import PatternError, matches

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_SKIPPED = "a skipped stage has null metrics; ask with has(...) first"


def evaluate(expr: Expr, env: Mapping[str, Any]) -> Any:
    """Return the value of `expr`, where `env` maps roots (`inputs`, `stages`, `state`, `run`) to nested mappings.

    A path that passes through null is null. Raises ExpressionError.
    """
    match expr:
        case Literal(value):
            return value
        case Path(names):
            return _follow(names, env, expr.offset)
        case Index(path, keys):
            return _follow((*path.names, *keys), env, expr.offset)
        case Array(items):
            return [evaluate(item, env) for item in items]
        case BuiltinCall(function, arguments):
            return _call(function, arguments, env)
        case Unary():
            return _unary(expr, env)
        case Binary(("&&" | "||") as junction, left, right):
            value = _boolean(left, env)
            return _boolean(right, env) if value == (junction == "&&") else value
        case Binary(("==" | "!=") as relation, left, right):
            return equal(evaluate(left, env), evaluate(right, env)) == (relation == "==")
        case Binary("in", left, right):
            return _holds(right, evaluate(right, env), evaluate(left, env))
        case Binary(symbol) if symbol in _ORDER:
            return _ORDER[symbol](*_comparable(expr, env))
    return _arithmetic(expr, env)


def type_name(value: Any) -> str:
    """Return the language's word for the type of a value."""
    names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}
    return names.get(type(value), type(value).__name__)


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal; int and float are one type, bool and number are not."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _follow(keys: tuple[int | str, ...], env: Mapping[str, Any], offset: int) -> Any:
    value: Any = env
    for depth, key in enumerate(keys):
        if value is None:
            return None
        if not _has_key(value, key):
            raise ExpressionError(f"there is no {spelt(keys[: depth + 1])}", offset)
        value = value[key]
    return value


def _has_key(value: Any, key: int | str) -> bool:
    if isinstance(key, int):
        return isinstance(value, list | tuple) and -len(value) <= key < len(value)
    return isinstance(value, Mapping) and key in value


def _has(path: Expr, env: Mapping[str, Any]) -> bool:
    try:
        return evaluate(path, env) is not None
    except ExpressionError:
        return False


def _holds(place: Expr, values: Any, wanted: Any) -> bool:
    """Return whether a list has an item that equals `wanted`, or an object has a member of that name."""
    if isinstance(values, list | tuple):
        return any(equal(item, wanted) for item in values)
    if isinstance(values, Mapping):
        return isinstance(wanted, str) and wanted in values
    hint = "write contains(text, part)" if isinstance(values, str) else _hint(values)
    raise ExpressionError(f"expected a list or an object, got {type_name(values)}", place.offset, hint)


def _text_test(function: str, arguments: tuple[Expr, ...], env: Mapping[str, Any]) -> bool:
    first, second = (evaluate(argument, env) for argument in arguments)
    if function == "contains" and isinstance(first, list | tuple):
        return _holds(arguments[0], first, second)
    for argument, value in zip(arguments, (first, second), strict=True):
        if not isinstance(value, str):
            raise ExpressionError(f"expected a string, got {type_name(value)}", argument.offset, _hint(value))
    if function == "contains":
        return second in first
    if function == "matches":
        return _matches(arguments, first, second)
    return bool(first.startswith(second) if function == "startsWith" else first.endswith(second))


def _matches(arguments: tuple[Expr, ...], text: str, pattern: str) -> bool:
    try:
        return matches(pattern, text)
    except PatternError as error:
        raise ExpressionError(f"matches(): {error}", arguments[1].offset) from None


def _boolean(expr: Expr, env: Mapping[str, Any]) -> bool:
    value = evaluate(expr, env)
    if not isinstance(value, bool):
        raise ExpressionError(f"expected true or false, got {type_name(value)}", expr.offset, _hint(value))
    return value


def _hint(value: Any) -> str:
    return _SKIPPED if value is None else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(expr: Expr, value: Any) -> Any:
    if not _is_number(value):
        raise ExpressionError(f"expected a number, got {type_name(value)}", expr.offset, _hint(value))
    return value


def _unary(expr: Unary, env: Mapping[str, Any]) -> Any:
    if expr.operator == "!":
        return not _boolean(expr.operand, env)
    return -_number(expr.operand, evaluate(expr.operand, env))


def _comparable(expr: Binary, env: Mapping[str, Any]) -> tuple[Any, Any]:
    left, right = evaluate(expr.left, env), evaluate(expr.right, env)
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    for side, value in ((expr.left, left), (expr.right, right)):
        if not (_is_number(value) or isinstance(value, str)):
            raise ExpressionError(f"{type_name(value)} has no order", side.offset, _hint(value))
    if isinstance(left, str) or isinstance(right, str):
        message = f"cannot compare {type_name(left)} with {type_name(right)}"
        raise ExpressionError(message, expr.offset)
    return left, right


def _arithmetic(expr: Binary, env: Mapping[str, Any]) -> Any:
    left, right = evaluate(expr.left, env), evaluate(expr.right, env)
    if expr.operator == "+" and isinstance(left, str) and isinstance(right, str):
        return _concatenate(expr, left, right)
    _number(expr.left, left)
    _number(expr.right, right)
    if expr.operator == "/" and right == 0:
        raise ExpressionError("division by zero", expr.offset)
    try:
        value = _ARITHMETIC[expr.operator](left, right)
    except OverflowError:
        value = math.inf
    if isinstance(value, float) and not math.isfinite(value):
        raise ExpressionError("the result is too large for a float", expr.offset)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError(f"the result has more than {MAX_BITS} bits", expr.offset)
    return value


def _concatenate(expr: Binary, left: str, right: str) -> str:
    if len(left) + len(right) > MAX_TEXT:
        raise ExpressionError(f"the text is longer than {MAX_TEXT} characters", expr.offset)
    return left + right


def _call(function: str, arguments: tuple[Expr, ...], env: Mapping[str, Any]) -> Any:
    if function == "has":
        return _has(arguments[0], env)
    if function == "size":
        return _size(arguments[0], env)
    if function in ("contains", "startsWith", "endsWith", "matches"):
        return _text_test(function, arguments, env)
    return _extreme(function, arguments, env)


def _size(argument: Expr, env: Mapping[str, Any]) -> int:
    value = evaluate(argument, env)
    if not isinstance(value, (str, list, tuple, Mapping)):
        raise ExpressionError(f"{type_name(value)} has no size", argument.offset, _hint(value))
    return len(value)


def _extreme(function: str, arguments: tuple[Expr, ...], env: Mapping[str, Any]) -> Any:
    """Return the first smallest or largest of the arguments, or of the items of one list."""
    pairs = [(argument, evaluate(argument, env)) for argument in arguments]
    if len(pairs) == 1 and isinstance(pairs[0][1], (list, tuple)):
        pairs = [(arguments[0], item) for item in pairs[0][1]]
    if not pairs:
        raise ExpressionError(f"{function}() of an empty list", arguments[0].offset, "ask with size(...) first")
    values = [_number(argument, value) for argument, value in pairs]
    return min(values) if function == "min" else max(values)
