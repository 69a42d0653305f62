"""The JSON Schema (draft 2020-12) of workflow documents, for editors and other tools."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from pydantic.alias_generators import to_camel

from . import model, object_model, triggers

FILE = "treadle-v1.schema.json"
_TITLE = "treadle workflow"
_MODELS = (model, object_model, triggers)


def schema() -> dict[str, Any]:
    """Return the schema of the model: unknown keys are refused, `x-*` is allowed at the top, keys have descriptions."""
    definitions = model.Spec.model_json_schema(by_alias=True)["$defs"]
    for name, definition in definitions.items():
        _polish(definition, next((getattr(one, name) for one in _MODELS if hasattr(one, name)), None))
    made = {**definitions["Spec"], "patternProperties": {"^x-": {}}}
    made["title"] = _TITLE
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "$defs": definitions}


def schema_text() -> str:
    """Return the text of the published file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def published() -> str:
    """Return the schema file of this installation."""
    return files(__package__).joinpath(FILE).read_text(encoding="utf-8")


def _polish(definition: dict[str, Any], described: Any) -> None:
    described_fields = dict(_field_docs(described)) if inspect.isclass(described) else {}
    for key, field in definition.get("properties", {}).items():
        field.pop("title", None)
        _refuse_null(field)
        if isinstance(field.get("default"), dict):
            del field["default"]
        if "patternProperties" in field:
            field["additionalProperties"] = False
        if key in described_fields:
            field["description"] = described_fields[key]


def _refuse_null(field: dict[str, Any]) -> None:
    """Refuse null: a key without a value is a mistake, although the model uses None for an absent key."""
    if "default" in field and field["default"] is None:
        del field["default"]
    branches = [branch for branch in field.get("anyOf", ()) if branch != {"type": "null"}]
    if len(branches) == 1:
        del field["anyOf"]
        field.update(branches[0])
    elif branches:
        field["anyOf"] = branches


def _field_docs(described: type) -> Iterator[tuple[str, str]]:
    """Yield each key and the docstring under its field, for the class and its bases."""
    for base in reversed(described.__mro__):
        if base.__module__ in {one.__name__ for one in _MODELS}:
            yield from _own_docs(base)


def _own_docs(described: type) -> Iterator[tuple[str, str]]:
    tree = ast.parse(inspect.getsource(described)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield to_camel(name).rstrip("_"), inspect.cleandoc(words)
