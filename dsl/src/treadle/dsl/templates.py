"""`${{ expression }}` inside JSON values: a whole-value expression keeps its type, an embedded one becomes text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from .expressions import Expr, ExpressionError, evaluate, parse, paths
from .expressions.evaluator import type_name
from .expressions.parser import parse_embedded

OPEN = "${{"


def is_reference(value: object) -> TypeGuard[str]:
    """Return whether a value of `state` or `next` is a plain string, which names data; templates are scalars."""
    return isinstance(value, str) and OPEN not in value


def parse_template(text: str) -> tuple[str | Expr, ...]:
    """Return literal pieces and expressions, in order; offsets count from the start of `text`. Raises
    ExpressionError.
    """
    pieces: list[str | Expr] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        if start > position:
            pieces.append(text[position:start])
        expr, position = parse_embedded(text, start + len(OPEN))
        pieces.append(expr)
    if position < len(text):
        pieces.append(text[position:])
    return tuple(pieces)


def whole(text: str) -> Expr | None:
    """Return the expression of a text that is exactly one `${{ }}`, otherwise None. Raises ExpressionError."""
    pieces = parse_template(text)
    only = pieces[0] if len(pieces) == 1 else None
    return None if isinstance(only, str) else only


def expressions_in(value: Any) -> Iterator[Expr]:
    """Yield every expression of a JSON value, in order. Raises ExpressionError."""
    if isinstance(value, str):
        yield from (piece for piece in parse_template(value) if not isinstance(piece, str))
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from expressions_in(item)


def template_paths(value: Any) -> set[tuple[str, ...]]:
    """Return every path in the templates of a JSON value. Raises ExpressionError."""
    return {path for expr in expressions_in(value) for path in paths(expr)}


def mentioned(value: Any) -> set[tuple[str, ...]]:
    """Return the paths like `template_paths`, but none for a malformed template, which another check reports."""
    try:
        return template_paths(value)
    except ExpressionError:
        return set()


def condition_paths(text: str | None) -> set[tuple[str, ...]]:
    """Return the paths of a condition, like `mentioned`."""
    try:
        return paths(parse(text)) if text else set()
    except ExpressionError:
        return set()


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
