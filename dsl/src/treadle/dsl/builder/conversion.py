"""Converts arguments of the builder for the model: handles to references and templates, callables to names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake
from pydantic_core import ErrorDetails

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import reference

from ..diagnostics.diagnostics import a
from ..expressions import parse, unparse
from ..templates import is_reference
from .formats import Files, LiteralData
from .handles import DataValue, StageHandle, ValueHandle

M = TypeVar("M", bound=BaseModel)

_BRACES = re.compile(r"""\{\{|\}\}|\{((?:[^{}'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)\}|[{}]""")


def expr(text: str) -> str:
    """Return a template: `expr("out/{run.id}/counts")` is `out/${{ run.id }}/counts`; `{{` and `}}` are literal braces.

    Raises ExpressionError for invalid text between braces, and UsageError for a single brace.
    """

    def replace(match: re.Match[str]) -> str:
        if match.group() in ("{{", "}}"):
            return match.group()[0]
        if match.group(1) is None:
            raise UsageError(f"a lone brace at {match.start()} of {text!r}", "Double it: {{ or }}.")
        return "${{ " + unparse(parse(match.group(1))) + " }}"

    return _BRACES.sub(replace, text)


def template(value: Any) -> Any:
    """Return JSON with every handle replaced by its template."""
    if isinstance(value, (ValueHandle, StageHandle)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): template(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [template(item) for item in value]
    return value


def data(value: Any) -> Any:
    """Return the `input` of a stage: a reference, files or literal data. Raises UsageError for any other value."""
    if isinstance(value, (StageHandle, DataValue)):
        return value.reference
    if isinstance(value, (Files, LiteralData)):
        return template(value.options)
    if isinstance(value, (list, tuple)):
        return [data(item) for item in value]
    if isinstance(value, str):
        return value
    raise UsageError(
        f"{a(type(value).__name__)} is no input of a stage",
        "Give a stage, an input, text(...), parquet(...), items([...]) or range_(n).",
    )


def state(value: Any) -> Any:
    """Return a value of a loop's `state` or `next`: a reference to data, or a scalar. Raises UsageError for
    plain text.
    """
    if is_data(value):
        return value.reference
    if is_reference(value):
        hint = "A bare text would be read as the name of a dataset: pass the handle, or expr(\"{'text'}\") for a text."
        raise UsageError(f"{value!r} is no state", hint)
    return template(value)


def is_data(value: Any) -> TypeGuard[StageHandle | DataValue]:
    return isinstance(value, StageHandle) or (isinstance(value, DataValue) and value.is_data)


def condition(value: Any) -> Any:
    """Return the text of `when` or `until`."""
    return unparse(value.expression) if isinstance(value, ValueHandle) else value


def function(value: Any, captured: dict[str, bytes]) -> Any:
    """Return a callable as a reference; one that cannot be imported is added to `captured` by value."""
    return reference(value, captured) if callable(value) else value


def boundaries(value: Any) -> Any:
    """Return a partitioner with the broadcast of its boundaries as a reference."""
    if isinstance(value, str):
        return {"type": value}
    if isinstance(value, Mapping) and isinstance(value.get("boundaries"), StageHandle):
        return {**value, "boundaries": value["boundaries"].reference}
    return value


def validated(model: Callable[[Any], M], value: Any, where: str) -> M:
    """Return the model of a value. Raises UsageError that names the argument, instead of pydantic's own error."""
    try:
        return model(value)
    except ValidationError as error:
        first = error.errors()[0]
        steps = [str(step) for step in first["loc"] if not str(step).startswith("<")]
        if isinstance(value, Mapping) and steps[:1] == [value.get("type")]:  # the tag of a union's branch
            steps = steps[1:]
        message, hint = _said(first)
        raise UsageError(f"{where}: {'.'.join(steps)}{message}", hint) from error


def _said(details: ErrorDetails) -> tuple[str, str]:
    """Return the problem and the remedy, in the words of document findings where they suit Python."""
    from ..document.model_errors import OTHER_NAMES, PATTERNS, found
    from .settings import StageSettings

    hint = "`treadle schema` lists what can stand where."
    if details["type"] == "extra_forbidden":
        other = to_snake(OTHER_NAMES.get(str(details["loc"][-1]), ""))
        known = other in StageSettings.__annotations__
        return " is not an option here", f"The word here is {other}." if known else hint
    if details["type"] == "string_pattern_mismatch" and details["ctx"]["pattern"] in PATTERNS:
        wanted, hint = PATTERNS[details["ctx"]["pattern"]]
        return f" must be {wanted}, not {found(details['input'])}", f"{hint[0].upper()}{hint[1:]}."
    return f": {details['msg'].removeprefix('Value error, ')}", hint
