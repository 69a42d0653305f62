"""A hint is correct: the document that it suggests is valid."""

from __future__ import annotations

import re

import pytest

from treadle.dsl.document.workflow_files import load
from treadle.dsl.validation.validate import validate

HEAD = "apiVersion: treadle/v1\nname: w\ninputs: {grid: {type: list, default: [1, 2]}}\n"


def hint(stage: str) -> str:
    (found,) = [one for one in validate(load(f"{HEAD}stages: {{a: {stage}}}\n")) if one.severity == "error"]
    return found.hint


@pytest.mark.parametrize(
    "given", ['{items: "${{ inputs.grid }}"}', '{items: ["${{ inputs.grid }}"]}', '"${{inputs.grid}}"']
)
def test_hint_how_to_read_a_list_is_a_valid_stage(given: str) -> None:
    written = re.search(r"`(input: .*)`", hint(f"{{type: map, uses: 'm:f', input: {given}}}"))
    assert written is not None
    assert validate(load(f"{HEAD}stages: {{a: {{type: map, uses: 'm:f', {written[1]}}}}}\n")) == []


@pytest.mark.parametrize(("number", "written"), [("2020000", "2020000B"), ("64", "64MiB")])
def test_hint_for_a_size_without_a_unit_is_likely_meant(number: str, written: str) -> None:
    stage = f"{{type: map, uses: 'm:f', input: {{uri: x.csv, format: csv, split: {number}}}}}"
    assert hint(stage) == f"write {written}"
