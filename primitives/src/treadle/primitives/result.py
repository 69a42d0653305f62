"""The return value of a user function that also reports metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from .encoding.tabular import conversion, type_name
from .errors import DataError

VALUE_LIMIT = 16 * 1024
"""Bytes of a stage's value, as JSON: it enters the history of the run."""


def is_storable(value: Any) -> bool:
    """Return whether ledgers and specs can hold the scalar: an integer may have 64 bits."""
    return not isinstance(value, int) or -(2**63) <= value < 2**64


class Result(Struct, frozen=True):
    """`value` is the function's plain return value; `metrics` are finite JSON scalars declared on the stage."""

    value: Any
    metrics: Mapping[str, Any] = {}


def stage_value(stage: str, record: Any) -> Any:
    """Return the record of a reduce as `stages.X.value`: a JSON value of at most `VALUE_LIMIT` bytes.

    NumPy and Arrow scalars are converted, tuples become lists. Raises DataError for any other value that JSON lacks.
    """
    return json_value(f"stages.{stage}.value", record)


def json_value(path: str, found: Any) -> Any:
    """Return a value under a path of expressions, as `stage_value` does."""
    import msgspec

    value = _as_json(path, found)
    size = len(msgspec.json.encode(value))
    if size > VALUE_LIMIT:
        raise DataError(
            f"`{path}` has {size:,} bytes as JSON, more than {VALUE_LIMIT:,}",
            "Return less, or give the stage an `output` and hand on its `uri`.",
        )
    return value


def _as_json(path: str, value: Any) -> Any:
    from .formats.rows import plain

    value = plain(value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {str(key): _as_json(path, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(path, item) for item in value]
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if not isinstance(value, bool | int | float | str | None) or not (is_finite and is_storable(value)):
        what = f"a value of type {type_name(value)}" if is_finite and is_storable(value) else f"the number {value}"
        raise DataError(f"`{path}` is JSON, which cannot hold {what}", conversion(value))
    return value
