"""Input values at the submission of a run."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl.model import Items, Source, Spec
from treadle.dsl.validation.inputs import InvalidInputs, resolve_inputs, source_of


def spec(**inputs: dict[str, Any]) -> Spec:
    stages = {"a": {"type": "map", "input": {"range": 3}, "uses": "m:f"}}
    data = {"apiVersion": "treadle/v1", "name": "n", "inputs": inputs, "stages": stages}
    return Spec.model_validate(data, by_alias=True, by_name=False)


def read(kind: str, text: Any, **rules: Any) -> Any:
    return resolve_inputs(spec(x={"type": kind, **rules}), {"x": text})["x"]


def refusal(kind: str, text: Any, **rules: Any) -> str:
    with pytest.raises(InvalidInputs) as caught:
        read(kind, text, **rules)
    (found,) = caught.value.diagnostics
    assert found.code == "T503"
    return f"{found.message}; {found.hint}"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "8", 8),
        ("integer", "0x10", 16),
        ("integer", 8, 8),
        ("integer", 8.0, 8),
        ("number", "1e-4", 1e-4),
        ("number", "3", 3),
        ("boolean", "true", True),
        ("boolean", False, False),
        ("string", "8", "8"),
        ("string", "null", "null"),
        ("uri", "s3://b/*.txt", "s3://b/*.txt"),
        ("list", '["a", 1]', ["a", 1]),
        ("list", "[a, 1]", ["a", 1]),
        ("dataset", "books/*.txt", {"uri": "books/*.txt", "format": "text"}),
        ("dataset", "x.csv.gz", {"uri": "x.csv.gz", "format": "csv"}),
        ("dataset", '{"uri": "x", "format": "npy"}', {"uri": "x", "format": "npy"}),
        ("dataset", "[1, 2]", {"items": [1, 2]}),
        ("dataset", "{range: 5}", {"range": 5}),
    ],
)
def test_text_is_read_as_the_declared_type(kind: str, text: Any, value: Any) -> None:
    found = read(kind, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "rules", "words"),
    [
        ("integer", "eight", {}, "must be a whole number, not the text 'eight'"),
        ("integer", "1.5", {}, "must be a whole number, not the number 1.5"),
        ("integer", "true", {}, "must be a whole number, not true"),
        ("integer", "", {}, "must be a whole number, not the text ''"),
        ("integer", "0", {"minimum": 1}, "at least 1, not 0"),
        ("integer", "9", {"maximum": 8}, "at most 8, not 9"),
        ("integer", "1000000", {"minimum": 1000001}, "at least 1000001, not 1000000"),
        ("integer", "9007199254740993", {"maximum": 9007199254740992}, "at most 9007199254740992"),
        ("integer", f"1{'0' * 400}", {}, "more than 64 bits"),
        ("number", float("nan"), {}, "finite"),
        ("boolean", "yes", {}, "true or false, not the text 'yes'"),
        ("string", 3, {}, "must be text, not the number 3"),
        ("string", "smal", {"enum": ["small", "large"]}, "did you mean 'small'?"),
        ("list", "a", {}, "must be a list"),
        ("dataset", "books", {}, 'write {"uri": "books", "format": ...} with '),
        ("dataset", '{"uri": "x", "format": "jason"}', {}, "did you mean 'jsonl'?"),
        ("dataset", '{"uri": "x"}', {}, "needs the key 'format'"),
        ("dataset", '{"uri": "${{ run.id }}", "format": "text"}', {}, "expressions are not evaluated"),
        ("dataset", "3", {}, "not the number 3"),
    ],
)
def test_value_that_does_not_fit_is_refused(kind: str, text: Any, rules: dict[str, Any], words: str) -> None:
    assert words in refusal(kind, text, **rules)


@pytest.mark.parametrize("items", [["${{ run.id }}"], [{"${{ x }}": ["a ${{ y }}"]}]])
def test_records_of_a_dataset_are_data_also_when_they_look_like_expressions(items: list[Any]) -> None:
    given: dict[str, Any] = {"d": {"items": items}}
    assert resolve_inputs(spec(d={"type": "dataset", "required": True}), given) == given


def test_defaults_fill_in_and_an_optional_input_is_null() -> None:
    declared = spec(a={"type": "integer", "default": 4}, b={"type": "string"}, c={"type": "number", "default": 2})
    assert resolve_inputs(declared, {"c": "0.5"}) == {"a": 4, "b": None, "c": 0.5}


def test_all_mistakes_are_reported_together() -> None:
    declared = spec(points={"type": "uri", "required": True}, k={"type": "integer"})
    with pytest.raises(InvalidInputs) as caught:
        resolve_inputs(declared, {"point": "x", "k": "two"})
    codes = {found.code: found for found in caught.value.diagnostics}
    assert set(codes) == {"T501", "T502", "T503"}
    assert codes["T501"].hint == "did you mean 'points'?"
    assert "-i points=" in codes["T502"].hint
    assert "the input 'k'" in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_either_accepted_or_refused_with_words(text: str) -> None:
    for kind in ("integer", "number", "boolean", "list", "dataset"):
        with suppress(InvalidInputs):
            read(kind, text)


@given(st.text())
def test_text_inputs_keep_the_given_text(text: str) -> None:
    assert read("string", text) == text


def test_resolved_datasets_and_lists_are_read_as_stage_inputs() -> None:
    declared = spec(data={"type": "dataset", "required": True}, names={"type": "list", "default": ["a", "b"]})
    values = resolve_inputs(declared, {"data": "in/*.jsonl"})
    assert source_of(values["data"]) == Source(uri="in/*.jsonl", format="jsonl")
    assert source_of(values["names"]) == Items(items=["a", "b"])
