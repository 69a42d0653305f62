"""The syntax tree of an expression. Every node knows where it stands in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.primitives.errors import UsageError

MAX_LENGTH = 4096
"""Characters of one expression."""
MAX_DEPTH = 100
"""Levels of the tree; a chain of n operators has n levels."""
MAX_BITS = 4096
"""Of an integer. Integers are exact up to here, far beyond any count, and always short enough to print."""
MAX_PATTERN = 1000
"""Characters of a regular expression."""
MAX_TEXT = 2**16
"""Characters of a string made by `+`, or searched by `matches`."""

FUNCTIONS = ("size", "min", "max", "has", "contains", "startsWith", "endsWith", "matches")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class ExpressionError(UsageError):
    """The expression cannot be read, typed or evaluated: the author must change it, `offset` characters in."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.offset = offset


@dataclass(frozen=True)
class Literal:
    """null, a boolean, a number or a string. Numbers are not negative: `-1` is a unary minus."""

    value: bool | int | float | str | None
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Path:
    """`inputs.k` or `inputs["k"]`: names to follow from the root."""

    names: tuple[str, ...]
    offset: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return spelt(self.names)


@dataclass(frozen=True)
class Index:
    """`event.data.lines[0].sku`: a path, then positions in lists and names; the first key is a position.

    A negative position counts from the end.
    """

    path: Path
    keys: tuple[int | str, ...]
    offset: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return spelt((*self.path.names, *self.keys))


@dataclass(frozen=True)
class Array:
    """`["a", "b"]`."""

    items: tuple[Expr, ...]
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Unary:
    operator: str
    operand: Expr
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Binary:
    """`offset` is that of the operator."""

    operator: str
    left: Expr
    right: Expr
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Call:
    """One of FUNCTIONS with its arguments."""

    function: str
    arguments: tuple[Expr, ...]
    offset: int = field(default=0, compare=False)


Expr = Literal | Path | Index | Array | Unary | Binary | Call


def spelt(keys: tuple[int | str, ...]) -> str:
    """A path as text: names that are no identifiers, and positions, are in brackets."""
    parts = (
        f".{key}"
        if isinstance(key, str) and _IDENTIFIER.fullmatch(key)
        else f"[{key if isinstance(key, int) else quoted(key)}]"
        for key in keys
    )
    return "".join(parts).removeprefix(".")


def quoted(text: str) -> str:
    """A string literal of the language."""
    return '"' + _SPECIAL.sub(lambda match: _ESCAPES.get(match.group(), f"\\u{ord(match.group()):04x}"), text) + '"'


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands, left to right."""
    match expr:
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Call(_, arguments):
            return arguments
        case Index(path):
            return (path,)
        case Array(items):
            return items
    return ()


def walk(expr: Expr) -> Iterator[tuple[Expr, int]]:
    """Every node with its level, the root being level 1; safe on trees of any depth."""
    stack = [(expr, 1)]
    while stack:
        node, level = stack.pop()
        yield node, level
        stack.extend((child, level + 1) for child in children(node))


def paths(expr: Expr) -> set[tuple[str, ...]]:
    """Every path the expression mentions, those inside `has()` too."""
    return {node.names for node, _ in walk(expr) if isinstance(node, Path)}
