"""Syntax tree to text, with the fewest parentheses: `parse(unparse(e)) == e`."""

from __future__ import annotations

import json
import re

from .nodes import Binary, Call, Expr, Literal, Path, Unary
from .parser import COMPARISONS, PRECEDENCE, UNARY

_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def unparse(expr: Expr) -> str:
    """The expression as text that parses back to an equal tree."""
    match expr:
        case Literal(value):
            return _quote(value) if isinstance(value, str) else json.dumps(value)
        case Path():
            return str(expr)
        case Call(function, arguments):
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


def _quote(text: str) -> str:
    return '"' + _SPECIAL.sub(lambda match: _ESCAPES.get(match.group(), f"\\u{ord(match.group()):04x}"), text) + '"'
