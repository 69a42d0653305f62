"""Finds the keys that the language has at a place of a document, by walking the model along the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from ..diagnostics.diagnostics import Path
from ..model import Spec
from ..model_base import Model


def keys_at(data: Any, path: Path) -> dict[str, FieldInfo]:
    """Return the fields, by key, of the model for the mapping at `path`; empty for a free mapping."""
    annotation: Any = Spec
    for part in path:
        annotation = _below(annotation, data, part)
        data = _get(data, part)
    model = _model(annotation, data)
    return fields_of(model) if model else {}


def empty_keys(data: Any) -> Iterator[Path]:
    """Yield keys of the language that are written without a value, where null is not allowed."""
    return _empty(Spec, data, ())


def _empty(annotation: Any, data: Any, path: Path) -> Iterator[Path]:
    parts = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    below = _annotations_below(annotation, data) if parts else None
    for part in parts:
        inner = below(part) if below else None
        if inner is None or (inner is JsonValue and data[part] is not None):
            continue
        if data[part] is not None:
            yield from _empty(inner, data[part], (*path, part))
        elif inner is not JsonValue and isinstance(part, str):
            yield (*path, part)


@cache
def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by key as written."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _get(data: Any, part: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(part)
    return data[part] if isinstance(data, list) and isinstance(part, int) and part < len(data) else None


def _below(annotation: Any, data: Any, part: str | int) -> Any:
    return _annotations_below(annotation, data)(part)


def _annotations_below(annotation: Any, data: Any) -> Callable[[str | int], Any]:
    """Return a function from a key or position to its annotation; None where the language defines none."""
    model = _model(annotation, data)
    if model is not None:
        fields = fields_of(model)
        return lambda part: fields[str(part)].annotation if str(part) in fields else None
    args = {get_origin(branch): get_args(branch) for branch in _branches(annotation)}
    listed, mapped = args.get(list, (None,))[-1], args.get(dict, (None,))[-1]
    return lambda part: listed if isinstance(part, int) else mapped


def _branches(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of an annotation, with Annotated and unions unwrapped."""
    if get_origin(annotation) is Annotated:
        yield from _branches(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for branch in get_args(annotation):
            yield from _branches(branch)
    else:
        yield annotation


def _model(annotation: Any, data: Any) -> type[BaseModel] | None:
    models = [item for item in _branches(annotation) if isinstance(item, type) and issubclass(item, Model)]
    if len(models) <= 1 or not isinstance(data, dict):
        return models[0] if models else None
    tagged = [model for model in models if _tag(model) == data.get("type", "")]
    if tagged:
        return tagged[0]
    own = [model for model in models if {"items", "range"} & fields_of(model).keys() & data.keys()]
    return own[0] if own else None if any(_tag(model) for model in models) else models[0]


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("type")
    if field is None or get_origin(field.annotation) is not Literal:
        return None
    return str(get_args(field.annotation)[0])
