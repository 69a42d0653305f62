"""The syntax tree of an expression. Every node knows its offset in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.primitives.errors import UsageError

MAX_LENGTH = 4096
"""Limit of characters of one expression."""
MAX_DEPTH = 100
"""Limit of levels of the tree; a chain of n operators has n levels."""
MAX_BITS = 4096
"""Limit of bits of an integer. Integers are exact up to here, far beyond any count, and always short enough
to print.
"""
MAX_PATTERN = 1000
"""Limit of characters of a regular expression."""
MAX_TEXT = 2**16
"""Limit of characters of a string made by `+`, or searched by `matches`."""

FUNCTIONS = ("size", "min", "max", "has", "contains", "startsWith", "endsWith", "matches")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class ExpressionError(UsageError):
    """The expression cannot be parsed, typed or evaluated. The author must change it at `offset` characters."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal: null, a boolean, a number or a string. Numbers are not negative: `-1` is a unary minus."""

    value: bool | int | float | str | None
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Path:
    """`inputs.k` or `inputs["k"]`: names to follow from the root."""

    names: tuple[str, ...]
    offset: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return spelt(self.names)


@dataclass(frozen=True, slots=True)
class Index:
    """`event.data.lines[0].sku`: a path, then list positions and names; the first key is a position.

    A negative position counts from the end.
    """

    path: Path
    keys: tuple[int | str, ...]
    offset: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return spelt((*self.path.names, *self.keys))


@dataclass(frozen=True, slots=True)
class Array:
    """A list such as `["a", "b"]`."""

    items: tuple[Expr, ...]
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Expr
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operation; `offset` is that of the operator."""

    operator: str
    left: Expr
    right: Expr
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BuiltinCall:
    """A call of one of FUNCTIONS with its arguments."""

    function: str
    arguments: tuple[Expr, ...]
    offset: int = field(default=0, compare=False)


Expr = Literal | Path | Index | Array | Unary | Binary | BuiltinCall


def spelt(keys: tuple[int | str, ...]) -> str:
    """Return a path as text; list positions, and names that are not identifiers, are in brackets."""
    parts = (
        f".{key}"
        if isinstance(key, str) and _IDENTIFIER.fullmatch(key)
        else f"[{key if isinstance(key, int) else quoted(key)}]"
        for key in keys
    )
    return "".join(parts).removeprefix(".")


def quoted(text: str) -> str:
    """Return a string literal of the language."""
    return '"' + _SPECIAL.sub(lambda match: _ESCAPES.get(match.group(), f"\\u{ord(match.group()):04x}"), text) + '"'


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands, left to right."""
    match expr:
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case BuiltinCall(_, arguments):
            return arguments
        case Index(path):
            return (path,)
        case Array(items):
            return items
    return ()


def walk(expr: Expr) -> Iterator[tuple[Expr, int]]:
    """Yield every node with its level, the root being level 1; safe for trees of any depth."""
    stack = [(expr, 1)]
    while stack:
        node, level = stack.pop()
        yield node, level
        stack.extend((child, level + 1) for child in children(node))


def paths(expr: Expr) -> set[tuple[str, ...]]:
    """Return every path in the expression, including paths inside `has()`."""
    return {node.names for node, _ in walk(expr) if isinstance(node, Path)}
