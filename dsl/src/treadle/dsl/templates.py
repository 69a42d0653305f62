"""`${{ expression }}` inside JSON values: a whole-value expression keeps its type, an embedded one becomes text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from .expressions import Expr, ExpressionError, evaluate, paths, read_paths
from .expressions.evaluator import type_name
from .expressions.parse_cache import ParseCache
from .expressions.parser import parse_embedded

OPEN = "${{"
CONDITIONS = frozenset({"when", "until", "filter", "dedupe"})
"""Fields whose text is an expression without delimiters."""


class _Template(NamedTuple):
    pieces: tuple[str | Expr, ...]
    paths: frozenset[tuple[str, ...]]


def is_reference(value: object) -> TypeGuard[str]:
    """Return whether a value of `state` or `next` is a plain string, which names data; templates are scalars."""
    return isinstance(value, str) and OPEN not in value


def parse_template(text: str) -> tuple[str | Expr, ...]:
    """Return literal pieces and expressions, in order; offsets count from the start of `text`. Raises
    ExpressionError.
    """
    if OPEN not in text:
        return (text,) if text else ()
    return _parsed(text).pieces


def _template(text: str) -> _Template:
    pieces = tuple(_pieces(text))
    read = [paths(piece) for piece in pieces if not isinstance(piece, str)]
    return _Template(pieces, frozenset().union(*read))


_parsed = ParseCache(_template)


def _pieces(text: str) -> Iterator[str | Expr]:
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        if start > position:
            yield text[position:start]
        expr, position = parse_embedded(text, start + len(OPEN))
        yield expr
    if position < len(text):
        yield text[position:]


def whole(text: str) -> Expr | None:
    """Return the expression of a text that is exactly one `${{ }}`, otherwise None. Raises ExpressionError."""
    pieces = parse_template(text)
    only = pieces[0] if len(pieces) == 1 else None
    return None if isinstance(only, str) else only


def template_paths(value: Any) -> set[tuple[str, ...]]:
    """Return every path in the templates of a JSON value. Raises ExpressionError."""
    found: set[tuple[str, ...]] = set()
    _add_paths(value, found)
    return found


def _add_paths(value: Any, found: set[tuple[str, ...]]) -> None:
    if isinstance(value, str):
        if OPEN in value:
            found |= _parsed(value).paths
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            _add_paths(item, found)


def mentioned(value: Any) -> set[tuple[str, ...]]:
    """Return the paths like `template_paths`, but none for a malformed template, which another check reports."""
    try:
        return template_paths(value)
    except ExpressionError:
        return set()


def condition_paths(text: str | None) -> set[tuple[str, ...]]:
    """Return the paths of a condition, like `mentioned`."""
    try:
        return set(read_paths(text)) if text else set()
    except ExpressionError:
        return set()


def expression_size(value: Any, field: str = "") -> int:
    """Return the number of characters in the expressions of a JSON value. All counts from the first `${{` of a text to
    its last `}}`.
    """
    if isinstance(value, dict):
        return sum(expression_size(item, key) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(expression_size, value))
    if not isinstance(value, str):
        return 0
    if OPEN in value:
        return max(0, value.rfind("}}") - value.find(OPEN))
    return len(value) if field in CONDITIONS else 0


def render(value: Any, env: Mapping[str, Any]) -> Any:
    """Return a copy of a JSON value with every template replaced by its value. Raises ExpressionError."""
    if isinstance(value, str):
        return _render_text(value, env)
    if isinstance(value, Mapping):
        return {key: render(item, env) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [render(item, env) for item in value]
    return value


def _render_text(text: str, env: Mapping[str, Any]) -> Any:
    pieces = parse_template(text)
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return evaluate(pieces[0], env)
    return "".join(piece if isinstance(piece, str) else _text(piece, evaluate(piece, env)) for piece in pieces)


def _text(expr: Expr, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, (bool, int, float)):
        hint = "only strings, numbers and booleans can stand inside a longer text"
        raise ExpressionError(f"{type_name(value)} cannot become text", expr.offset, hint)
    return json.dumps(value)
