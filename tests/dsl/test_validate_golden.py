"""Every wrong document in tests/dsl/golden has its message next to it. Every document in golden/good has none.

Set UPDATE_GOLDEN=1 to rewrite the messages. Read the difference before committing it.
"""

import os
import re
from pathlib import Path

import pytest
import yaml

from treadle.dsl.diagnostics.diagnostics import CODES, codes_page
from treadle.dsl.diagnostics.formats import render
from treadle.dsl.document import loader as yaml_loader
from treadle.dsl.document.workflow_files import load
from treadle.dsl.validation.functions import check_functions
from treadle.dsl.validation.validate import validate

GOLDEN = Path(__file__).parent / "golden"
MISTAKES = sorted(GOLDEN.glob("*.yaml"))
GOOD = sorted((GOLDEN / "good").glob("*.yaml"))
OF_GIVEN_VALUES = {"T501", "T502", "T503"}
OF_PYTHON_FILES = {"T019"}
OF_MANY_FINDINGS = {"T606"}
OF_FOLDERS = {"T407"}


def findings(path: Path) -> str:
    document = load(path, path.name)
    found = validate(document)
    if path.name.startswith("function_"):
        found += check_functions(document, [GOLDEN])
    return render(found, document.source).replace(str(GOLDEN), "golden")


@pytest.mark.parametrize("path", MISTAKES, ids=lambda path: path.stem)
def test_mistake_is_reported_as_in_the_golden_file(path: Path) -> None:
    found, expected = findings(path), path.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(found, encoding="utf-8")
    assert found
    assert found == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_document_has_no_findings(path: Path) -> None:
    assert findings(path) == ""


def test_every_code_has_a_golden_mistake() -> None:
    told = "".join(path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.txt"))
    elsewhere = OF_GIVEN_VALUES | OF_PYTHON_FILES | OF_MANY_FINDINGS | OF_FOLDERS
    assert set(re.findall(r"\[(T\d+)\] ", told)) | elsewhere == set(CODES)


def test_documented_codes_equal_the_codes_of_the_program() -> None:
    page = Path(__file__).parents[2] / "docs" / "diagnostics.md"
    assert page.read_text(encoding="utf-8") == codes_page()


@pytest.mark.parametrize("path", MISTAKES + GOOD, ids=lambda path: path.stem)
def test_parser_without_libyaml_tells_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = findings(path)
    monkeypatch.setattr(yaml_loader, "_PARSER", yaml.SafeLoader)
    assert findings(path) == expected
