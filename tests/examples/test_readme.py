"""What the README shows is true."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from treadle.dsl import Workflow
from treadle.dsl.diagnostics.diagnostics import has_errors
from treadle.dsl.document.workflow_files import load
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.functions import check_functions
from treadle.dsl.validation.validate import validate

ROOT = Path(__file__).parents[2]
WORDCOUNT = ROOT / "examples" / "wordcount"


def block(language: str) -> str:
    """The first of the language: the others are parts of documents."""
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert found
    return str(found[0])


def test_yaml_of_the_readme_is_a_valid_workflow() -> None:
    document = load(block("yaml"))
    assert not validate(document)
    assert not has_errors(check_functions(document, [WORDCOUNT]))


def test_python_of_the_readme_is_its_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORDCOUNT))
    names: dict[str, object] = {}
    try:
        exec(block("python"), names)
    finally:
        sys.modules.pop("wordcount", None)
    workflow = names["wf"]
    assert isinstance(workflow, Workflow)
    assert normalise(workflow.spec()) == normalise(load(block("yaml")).require())
