"""The canonical form of a spec, which is stored with a run."""

from __future__ import annotations

from typing import Any

from .expressions import ExpressionError, parse, unparse
from .model import ReduceStage, Spec
from .model_base import Model
from .templates import CONDITIONS, OPEN, parse_template

_UNORDERED = frozenset(
    {"triggers", "objects", "stages", "inputs", "labels", "with_", "state", "next", "outputs", "metrics"}
)
"""Mappings whose order has no meaning. The order of columns, and of keys inside user values, has one."""
_LITERAL = frozenset({"items", "initial", "boundaries", "default", "enum", "description", "labels", "schema_"})
"""Fields that are never evaluated, and so never rewritten."""


def normalise(spec: Spec) -> dict[str, Any]:
    """Return the spec as JSON: keys of the language, without defaults, with one spelling of each quantity and
    expression.

    Triggers keep their defaults: they stay deployed while treadle is upgraded, and a new default must not change them.
    The result reads back as an equal spec (except for the spelling of expressions), and normalising that spec changes
    nothing.
    """
    dumped = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if spec.triggers:
        dumped["triggers"] = spec.model_dump(mode="json", by_alias=True, include={"triggers"})["triggers"]
    result: dict[str, Any] = _canonical(dumped, spec, "")
    return result


def as_written(spec: Spec) -> dict[str, Any]:
    """Return the document as JSON: only the written keys, in their order."""
    return spec.model_dump(mode="json", by_alias=True, exclude_unset=True)


def read_normalised(data: dict[str, Any]) -> Spec:
    """Return the spec of a normalised form. Raises pydantic.ValidationError for any other data."""
    return Spec.model_validate(data, by_alias=True, by_name=False)


def without_triggers(spec: Spec) -> Spec:
    """Return the part of a spec that a run depends on: editing a trigger changes no run."""
    return spec.model_copy(update={"triggers": {}})


def _canonical(dumped: Any, value: Any, field: str) -> Any:
    """Order `dumped` along the model that it was dumped from."""
    if isinstance(value, Model):
        return _model(dumped, value)
    if field in _LITERAL:
        return dumped
    if isinstance(dumped, dict) and isinstance(value, dict):
        keys = sorted(dumped) if field in _UNORDERED else list(dumped)
        return {key: _canonical(dumped[key], value[key], "") for key in keys}
    if isinstance(dumped, list):
        return [_canonical(item, part, "") for item, part in zip(dumped, value, strict=True)]
    if isinstance(dumped, str):
        return _condition(dumped) if field in CONDITIONS else _template(dumped)
    return dumped


def _model(dumped: dict[str, Any], model: Model) -> dict[str, Any]:
    names = {info.alias or name: name for name, info in type(model).model_fields.items()}
    if isinstance(model, ReduceStage) and model.has_initial:
        dumped = {"initial": None, **dumped}
    keys = (key for key in sorted(dumped) if dumped[key] is not None or key == "initial")
    return {key: _canonical(dumped[key], getattr(model, names[key]), names[key]) for key in keys}


def _condition(text: str) -> str:
    try:
        return unparse(parse(text))
    except ExpressionError:
        return text


def _template(text: str) -> str:
    if OPEN not in text:
        return text
    try:
        pieces = parse_template(text)
    except ExpressionError:
        return text
    return "".join(piece if isinstance(piece, str) else f"{OPEN} {unparse(piece)} }}}}" for piece in pieces)
