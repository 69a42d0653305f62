"""Prints a syntax tree as text with the fewest parentheses: `parse(unparse(e)) == e`."""

from __future__ import annotations

import json

from .nodes import Array, Binary, BuiltinCall, Expr, Index, Literal, Path, Unary, quoted
from .parser import COMPARISONS, PRECEDENCE, UNARY


def unparse(expr: Expr) -> str:
    """Return the expression as text that parses back to an equal tree."""
    match expr:
        case Literal(value):
            return quoted(value) if isinstance(value, str) else json.dumps(value)
        case Path() | Index():
            return str(expr)
        case Array(items):
            return f"[{', '.join(map(unparse, items))}]"
        case BuiltinCall(function, arguments):
            return f"{function}({', '.join(unparse(argument) for argument in arguments)})"
        case Unary(operator, operand):
            return operator + _within(operand, UNARY)
        case Binary(operator, left, right):
            power = PRECEDENCE[operator]
            chained = operator in COMPARISONS
            return f"{_within(left, power + chained)} {operator} {_within(right, power + 1)}"


def _within(expr: Expr, power: int) -> str:
    text = unparse(expr)
    return f"({text})" if isinstance(expr, Binary) and PRECEDENCE[expr.operator] < power else text
