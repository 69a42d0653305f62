"""docs/dsl.md has a row for each key of the language, with the default of the model and an example that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from doc_pages import ROOT
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from treadle.dsl.caching import Cache
from treadle.dsl.model import (
    BarrierStage,
    Batch,
    BroadcastStage,
    FailedItems,
    HashPartitioner,
    Input,
    Items,
    LoopStage,
    MapStage,
    Memory,
    Output,
    Range,
    RangePartitioner,
    ReduceStage,
    Retry,
    ShuffleStage,
    Source,
    Spec,
    Stage,
    StageBase,
    WorkBase,
    WorkflowStage,
)
from treadle.dsl.object_model import Object

PAGE = (ROOT / "docs" / "dsl.md").read_text("utf-8")
HEAD = "| key | type | default | meaning | example |\n|---|---|---|---|---|\n"
MODELS: dict[str, tuple[type[BaseModel], type[BaseModel] | None]] = {
    "Document": (Spec, None),
    "Inputs": (Input, None),
    "Objects": (Object, None),
    "Settings of every stage": (StageBase, None),
    "Settings of work stages": (WorkBase, StageBase),
    "Retry": (Retry, None),
    "Memory": (Memory, None),
    "Cache": (Cache, None),
    "Output": (Output, None),
    "Map": (MapStage, WorkBase),
    "Batch": (Batch, None),
    "Failed items": (FailedItems, None),
    "Shuffle": (ShuffleStage, WorkBase),
    "Partitioner": (RangePartitioner, None),
    "Reduce": (ReduceStage, WorkBase),
    "Broadcast": (BroadcastStage, WorkBase),
    "Barrier": (BarrierStage, StageBase),
    "Loop": (LoopStage, StageBase),
    "Workflow": (WorkflowStage, StageBase),
    "Files": (Source, None),
    "Items": (Items, None),
    "Range": (Range, None),
}
"""Heading -> its model, and the model whose fields another table has."""


def tables() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Heading -> key -> its cells."""
    for heading, body in re.findall(r"^#+ ([^\n]+)\n((?:(?!^#).)*)", PAGE, re.M | re.S):
        if HEAD in body:
            rows = body.split(HEAD)[1].split("\n\n")[0].strip().splitlines()
            cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
            yield heading, {row[0].strip("`"): row[1:] for row in cells}


TABLES = dict(tables())


def fields(heading: str) -> dict[str, FieldInfo]:
    """The keys that the table of a heading must have."""
    model, shared = MODELS[heading]
    known = shared.model_fields if shared else {}
    own = {field.alias or name: field for name, field in model.model_fields.items() if name not in known}
    if shared:
        own.pop("type", None)  # the heading is the type
    return own


def test_each_model_of_the_language_has_a_table() -> None:
    assert set(TABLES) == set(MODELS)
    stages = {model for union in [Stage.__args__[0]] for model in union.__args__}
    assert stages <= {model for model, _ in MODELS.values()}


@pytest.mark.parametrize("heading", MODELS)
def test_table_has_a_row_for_each_key(heading: str) -> None:
    assert list(TABLES[heading]) == list(fields(heading))


@pytest.mark.parametrize("heading", MODELS)
def test_defaults_of_a_table_equal_the_defaults_of_the_model(heading: str) -> None:
    for key, field in fields(heading).items():
        shown = TABLES[heading][key][1]
        default = field.get_default(call_default_factory=True)
        if (heading, key) == ("Partitioner", "type"):
            assert written(shown) == HashPartitioner().type
        elif field.is_required() or default is None:
            assert shown == ("required" if field.is_required() else "none"), key
        else:
            assert made(heading, key, written(shown)) == default, key


@pytest.mark.parametrize("heading", MODELS)
def test_examples_of_a_table_are_values_that_the_model_takes(heading: str) -> None:
    for key in fields(heading):
        made(heading, key, written(TABLES[heading][key][3]))


def written(cell: str) -> Any:
    """The YAML of a cell."""
    assert re.fullmatch("`[^`]+`", cell), cell
    return yaml.safe_load(cell[1:-1])


def made(heading: str, key: str, value: Any) -> Any:
    """The model's value for a key, with examples for the other keys that it requires."""
    model, _ = MODELS[heading]
    required = {name: TABLES[heading][name][3] for name, field in fields(heading).items() if field.is_required()}
    document = {name: written(example) for name, example in required.items()}
    if "type" in model.model_fields and model is not Object:
        document = {"type": heading.lower(), **document}
    found = model.model_validate({**document, key: value})
    return {field.alias or name: getattr(found, name) for name, field in model.model_fields.items()}[key]
