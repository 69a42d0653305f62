"""Checks the types of expressions before a run: unknown names, and operands that can never fit."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from .nodes import Array, Binary, BuiltinCall, Expr, ExpressionError, Index, Literal, Path, Unary, spelt
from .regex import PatternError, compiled


class Type(StrEnum):
    """The type of a value. `float` also means "a number, whole or not"; `unknown` fits everything."""

    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    LIST = "list"
    UNKNOWN = "unknown"


Scope = Mapping[str, Any]
"""Nested mappings from a name to a Type (a value) or Scope (names below it). Below an unknown value every name is
allowed.
"""

_NUMBERS = {Type.INT, Type.FLOAT, Type.UNKNOWN}
_ORDERED = _NUMBERS | {Type.STRING}
_LITERALS = {type(None): Type.NULL, bool: Type.BOOL, int: Type.INT, float: Type.FLOAT, str: Type.STRING}


def check(expr: Expr, scope: Scope) -> Type:
    """Return the type of `expr`. Raises ExpressionError at the first name or operand that can never be right."""
    match expr:
        case Literal(value):
            return _LITERALS[type(value)]
        case Path():
            return _path(expr, scope)
        case Index():
            return _index(expr, scope)
        case Array(items):
            for item in items:
                check(item, scope)
            return Type.LIST
        case BuiltinCall(function, arguments):
            return _call(function, arguments, scope)
        case Unary("!", operand):
            return _expect(operand, scope, {Type.BOOL, Type.UNKNOWN}, "true or false", Type.BOOL)
        case Unary(_, operand):
            return _numeric(_expect(operand, scope, _NUMBERS, "a number"))
        case Binary(("&&" | "||"), left, right):
            _expect(left, scope, {Type.BOOL, Type.UNKNOWN}, "true or false")
            return _expect(right, scope, {Type.BOOL, Type.UNKNOWN}, "true or false", Type.BOOL)
        case Binary("+" | "-" | "*" | "/"):
            return _arithmetic(expr, scope)
        case Binary("in", left, right):
            return _membership(left, right, scope)
    return _comparison(expr, scope)


def _resolve(path: Path, scope: Scope) -> Any:
    """Return the Type or Scope at the path. Raises ExpressionError that lists the known names."""
    here: Any = scope
    for depth, name in enumerate(path.names):
        if here is Type.UNKNOWN or here is Type.NULL:
            return here
        if not isinstance(here, Mapping):
            message = f"{spelt(path.names[:depth])} is of type {here.value}, it has no {name!r}"
            raise ExpressionError(message, path.offset)
        if name not in here:
            message = f"there is no {spelt(path.names[: depth + 1])}"
            raise ExpressionError(message, path.offset, _suggest(name, here))
        here = here[name]
    return here


def _suggest(name: str, scope: Scope) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(scope), 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(sorted(scope))}" if scope else "there is nothing to name here"


def _path(path: Path, scope: Scope) -> Type:
    found = _resolve(path, scope)
    if isinstance(found, Mapping):
        below = ", ".join(spelt((*path.names, name)) for name in sorted(found))
        raise ExpressionError(f"{path} is not a value", path.offset, f"there are {below}" if below else "")
    return Type(found)


def _index(expr: Index, scope: Scope) -> Type:
    found = _path(expr.path, scope)
    if found not in (Type.LIST, Type.UNKNOWN, Type.NULL):
        message = f"{expr.path} is of type {found.value}, it has no [{expr.keys[0]}]"
        raise ExpressionError(message, expr.offset)
    return Type.NULL if found is Type.NULL else Type.UNKNOWN


def _membership(wanted: Expr, place: Expr, scope: Scope) -> Type:
    """Check `wanted in place`. Checks each operand once: twice at each level would take exponential time."""
    kind = check(wanted, scope)
    if isinstance(place, Array):
        for item in place.items:
            _check_alike(kind, check(item, scope), item)
        return Type.BOOL
    found = check(place, scope)
    if found not in (Type.LIST, Type.UNKNOWN):
        hint = "write contains(text, part)" if found is Type.STRING else ""
        raise ExpressionError(f"expected a list or an object, got {found.value}", place.offset, hint)
    return Type.BOOL


def _check_alike(kind: Type, other: Type, item: Expr) -> None:
    if not _may_be_alike(kind, other) and Type.NULL not in (kind, other):
        raise ExpressionError(f"{kind.value} and {other.value} cannot be compared", item.offset)


def _text_test(function: str, arguments: tuple[Expr, ...], scope: Scope) -> Type:
    first, second = arguments
    if function == "contains" and isinstance(first, Array):
        return _membership(second, first, scope)
    text, lists = {Type.STRING, Type.UNKNOWN}, {Type.LIST} if function == "contains" else set()
    found = _expect(first, scope, text | lists, "a string or a list" if lists else "a string")
    if found is Type.STRING or not lists:
        _expect(second, scope, text, "a string")
    else:
        check(second, scope)
    if function == "matches" and isinstance(second, Literal):
        _check_pattern(second)
    return Type.BOOL


def _check_pattern(pattern: Literal) -> None:
    try:
        compiled(str(pattern.value))
    except PatternError as error:
        hint = "patterns are those of RE2: without look-around and back references"
        raise ExpressionError(f"matches(): {error}", pattern.offset, hint) from None


def _expect(expr: Expr, scope: Scope, allowed: set[Type], wanted: str, result: Type | None = None) -> Type:
    found = check(expr, scope)
    if found not in allowed:
        raise ExpressionError(f"expected {wanted}, got {found.value}", expr.offset)
    return result or found


def _numeric(*types: Type) -> Type:
    return Type.INT if all(kind is Type.INT for kind in types) else Type.FLOAT


def _arithmetic(expr: Binary, scope: Scope) -> Type:
    left, right = check(expr.left, scope), check(expr.right, scope)
    if expr.operator == "+" and {left, right} <= {Type.STRING, Type.UNKNOWN}:
        return Type.STRING if Type.STRING in (left, right) else Type.UNKNOWN
    for side, found in ((expr.left, left), (expr.right, right)):
        if found not in _NUMBERS:
            raise ExpressionError(f"expected a number, got {found.value}", side.offset)
    return Type.FLOAT if expr.operator == "/" else _numeric(left, right)


def _comparison(expr: Binary, scope: Scope) -> Type:
    equality = expr.operator in ("==", "!=")
    left, right = check(expr.left, scope), check(expr.right, scope)
    for side, found in ((expr.left, left), (expr.right, right)):
        if not equality and found not in _ORDERED:
            raise ExpressionError(f"{found.value} has no order", side.offset)
    if not _may_be_alike(left, right) and not (equality and Type.NULL in (left, right)):
        hint = "quotes make text, and an input is what its `type` says" if _mixed(left, right) else ""
        raise ExpressionError(f"{left.value} and {right.value} cannot be compared", expr.offset, hint)
    return Type.BOOL


def _mixed(left: Type, right: Type) -> bool:
    """Return whether the types are text and a number."""
    return Type.STRING in (left, right) and not _NUMBERS.isdisjoint((left, right))


def _may_be_alike(left: Type, right: Type) -> bool:
    return left is right or Type.UNKNOWN in (left, right) or {left, right} == {Type.INT, Type.FLOAT}


def _call(function: str, arguments: tuple[Expr, ...], scope: Scope) -> Type:
    if function == "has":
        path = arguments[0]
        if isinstance(path, Index):
            _index(path, scope)
        elif isinstance(path, Path):
            _resolve(path, scope)
        return Type.BOOL
    if function in ("contains", "startsWith", "endsWith", "matches"):
        return _text_test(function, arguments, scope)
    if function == "size":
        sized = {Type.STRING, Type.LIST, Type.UNKNOWN}
        return _expect(arguments[0], scope, sized, "a string or a list", Type.INT)
    allowed = _NUMBERS | {Type.LIST} if len(arguments) == 1 else _NUMBERS
    return _numeric(*(_expect(argument, scope, allowed, "a number") for argument in arguments))
