"""The jobs that are evaluated within a budget: pure functions of JSON values, with the same result here or
in a worker.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from treadle.primitives.errors import UsageError

from ..expressions import Expr, ExpressionError, evaluate, parse
from ..templates import render

T = TypeVar("T")
SHOWN = 500
"""Characters of a reason; a schema's error may quote all of the data."""
_EXTRA = "pip install 'treadle-orchestrator[triggers]'"


class Unfit(UsageError):
    """The data does not fit a filter, a schema or a template. The same data never will."""


def holds(condition: str, env: Mapping[str, Any]) -> bool:
    """Return the value of a filter. Raises Unfit for an error, or a value that is not a boolean."""
    value = _guarded("filter", lambda: evaluate(_parsed(condition), env))
    if not isinstance(value, bool):
        raise Unfit(f"filter: it is {value!r}"[:SHOWN] + ", neither true nor false")
    return value


def check(schema: bytes, data: Any) -> None:
    """Raise Unfit when data violates a JSON Schema 2020-12 (JSON text)."""
    _guarded("schema", lambda: _check(schema, data))


def fill(template: Mapping[str, Any], env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `with` with its templates filled in. Raises Unfit."""
    return _guarded("with", lambda: render(dict(template), env))


def identity(expression: str, env: Mapping[str, Any]) -> str | int:
    """Return the value of a `dedupe` expression. Raises Unfit, also for a value that is neither text nor a whole
    number.
    """
    value = _guarded("dedupe", lambda: evaluate(_parsed(expression), env))
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise Unfit(f"dedupe: it is {value!r}"[:200] + ", neither text nor a whole number")
    return value


def schema_defect(schema: bytes) -> tuple[tuple[str | int, ...], str] | None:
    """Return the path and message of a defect in a JSON Schema 2020-12 (JSON text); None for a valid schema."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return tuple(error.absolute_path), error.message[:SHOWN]
    except (OverflowError, RecursionError) as error:
        return (), str(error)
    return None


@functools.lru_cache(256)
def _parsed(text: str) -> Expr:
    return parse(text)


def _check(schema: bytes, data: Any) -> None:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(_validator(schema).iter_errors(data))
    except Unresolvable as missing:
        raise Unfit(f"{missing} is not part of the schema") from None
    if error is not None:
        raise Unfit(f"{error.json_path}: {error.message}"[:SHOWN])


@functools.lru_cache(64)
def _validator(schema: bytes) -> Any:
    """Return a validator for a JSON Schema 2020-12; references to other documents are not followed."""
    try:
        from jsonschema import Draft202012Validator
        from referencing import Registry
    except ModuleNotFoundError as error:
        raise UsageError(f"`schema` of a trigger needs {error.name}", _EXTRA) from error
    if defect := schema_defect(schema):
        raise Unfit(f"this is no JSON Schema: {defect[1]}", "Correct `schema` and deploy again.")
    return Draft202012Validator(json.loads(schema), registry=Registry())


def _guarded(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (ExpressionError, Unfit) as error:
        raise Unfit(f"{what}: {error.message}", error.hint) from None
    except RecursionError:
        raise Unfit(f"{what}: the event is nested too deeply") from None
    except OverflowError as error:
        raise Unfit(f"{what}: a number is too large: {error}") from None


JOBS: Mapping[str, Callable[..., Any]] = {one.__name__: one for one in (holds, check, fill, identity, schema_defect)}
WORDS = {"holds": "filter", "check": "schema", "fill": "with", "identity": "dedupe", "schema_defect": "schema"}
"""The trigger key that each job evaluates."""
