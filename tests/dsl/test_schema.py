"""The published JSON Schema: generated from the model, strict, and equal to the loader in shape."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from treadle.dsl.document.loader import load_yaml
from treadle.dsl.document.workflow_files import load
from treadle.dsl.schema import published, schema, schema_text

GOLDEN = Path(__file__).parent / "golden"
OF_SHAPE = {"T011", "T012", "T013", "T014", "T015", "T016", "T017", "T018"}
BY_VALIDATION_ONLY = {"limits_of_nothing"}
"""Rules that a schema cannot express: comparisons between two keys, and quantities of nothing."""
VALIDATOR = jsonschema.Draft202012Validator(schema())


def mistakes_of_shape() -> list[Path]:
    def codes(path: Path) -> set[str]:
        return set(re.findall(r"error\[(T\d+)\]", path.with_suffix(".txt").read_text(encoding="utf-8")))

    return [path for path in sorted(GOLDEN.glob("*.yaml")) if codes(path) and codes(path) <= OF_SHAPE]


def test_published_file_is_the_schema_of_this_model() -> None:
    assert published() == schema_text()


def test_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("path", sorted((GOLDEN / "good").glob("*.yaml")), ids=lambda path: path.stem)
def test_good_document_passes(path: Path) -> None:
    VALIDATOR.validate(load_yaml(path.read_text(encoding="utf-8")).data)


@pytest.mark.parametrize("path", mistakes_of_shape(), ids=lambda path: path.stem)
def test_mistake_of_shape_fails(path: Path) -> None:
    data = load_yaml(path.read_text(encoding="utf-8")).data
    assert VALIDATOR.is_valid(data) == (path.stem in BY_VALIDATION_ONLY)


def objects(value: Any) -> list[dict[str, Any]]:
    found = [value] if isinstance(value, dict) and "properties" in value else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [each for item in inner for each in objects(item)]


def test_every_object_refuses_unknown_keys() -> None:
    assert all(each["additionalProperties"] is False for each in objects(schema()))


def test_keys_carry_the_docstrings_of_the_model() -> None:
    definitions = schema()["$defs"]
    assert definitions["MapStage"]["properties"]["deadline"]["description"] == "Limit for a stage with all its retries."
    assert definitions["ReduceStage"]["properties"]["fanIn"]["description"].startswith("Default 16")
    assert "default" not in definitions["MapStage"]["properties"]["output"]


def test_top_level_extension_keys_are_allowed_only_there() -> None:
    stage = {"type": "map", "input": {"range": 3}, "uses": "m:f"}
    top = {"apiVersion": "treadle/v1", "name": "n", "x-note": [1], "stages": {"a": stage}}
    assert VALIDATOR.is_valid(top)
    assert not VALIDATOR.is_valid({**top, "stages": {"a": {**stage, "x-note": 1}}})


def test_schema_and_loader_agree_on_an_input_of_two_sorts() -> None:
    text = "apiVersion: treadle/v1\nname: n\nstages: {a: {type: map, uses: 'm:f', input: {items: [1], range: 3}}}\n"
    assert load(text).spec is None
    assert not VALIDATOR.is_valid(load(text).data)
