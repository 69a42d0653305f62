"""Arguments and result of `run_reference`, as unit tests of users call it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from treadle.dsl import Workflow, items
from treadle.dsl.document.document import InvalidDocument
from treadle.dsl.reference import run_reference
from treadle.dsl.validation.inputs import InvalidInputs


def test_inputs_are_resolved_as_for_a_run() -> None:
    workflow = Workflow("inputs")
    workflow.map("numbers", workflow.input("numbers", "dataset", required=True), uses=lambda number: number + 1)
    assert run_reference(workflow, {"numbers": [1, 2]}).records("numbers") == [2, 3]
    with pytest.raises(InvalidInputs, match="'other'"):
        run_reference(workflow, {"numbers": [1], "other": 2})


def test_invalid_workflow_is_refused_with_its_findings(tmp_path: Path) -> None:
    workflow = Workflow("invalid")
    first = workflow.map("first", items([1]), uses="builtins:str")
    workflow.map("second", first, uses="builtins:str", cache=True)
    file = tmp_path / "invalid.yaml"
    file.write_text(workflow.to_yaml())
    for wrong in (workflow, file, str(file)):
        with pytest.raises(InvalidDocument, match="'second' cannot be cached"):
            run_reference(wrong)


def test_sub_workflow_of_a_file_is_read_from_the_base(tmp_path: Path) -> None:
    child = Workflow("child")
    child.map("a", items(["x"]), uses="builtins:str")
    (tmp_path / "child.yaml").write_text(child.to_yaml())
    workflow = Workflow("parent")
    workflow.workflow("inner", uses="child.yaml")
    assert run_reference(workflow, base=tmp_path).children["inner"].records("a") == ["x"]


def test_records_are_rows_of_tables_and_of_arrays() -> None:
    workflow = Workflow("rows")
    numbers = items([1, 2])
    workflow.map("tables", numbers, uses=lambda rows: pa.table({"n": list(rows)}), per="partition")
    assert run_reference(workflow).records("tables") == [{"n": 1}, {"n": 2}]
