"""Importing a document's functions leaves this process unchanged."""

import sys
from pathlib import Path

import pytest

from treadle.dsl.document.document import Document
from treadle.dsl.document.workflow_files import load
from treadle.dsl.validation.functions import check_functions

STAGE = "{type: map, input: {range: 3}, uses: %s}"


def document(*functions: str) -> Document:
    stages = "".join(f"  s{index}: {STAGE % function}\n" for index, function in enumerate(functions))
    return load(f"apiVersion: treadle/v1\nname: flow\nstages:\n{stages}")


def codes(checked: Document, *folders: Path) -> list[str]:
    return [found.code for found in check_functions(checked, folders)]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def test_two_folders_may_each_have_a_module_of_one_name(tmp_path: Path) -> None:
    first = write(tmp_path / "a", "steps.py", "def one(record): ...\n")
    second = write(tmp_path / "b", "steps.py", "def two(record): ...\n")
    assert codes(document("steps:one"), first) == []
    assert codes(document("steps:two"), second) == []
    assert codes(document("steps:one"), second) == ["T403"]


@pytest.mark.parametrize("name", ["json", "yaml"])
def test_module_that_others_hide_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"{name}.py", "def one(record): ...\n")
    (found,) = check_functions(document(f"{name}:one"), [tmp_path])
    assert (found.code, found.hint) == ("T407", f"rename {name}.py, such as my_{name}.py")
    assert f"the name of {name}.py is taken" in found.message


def test_path_and_modules_are_restored(tmp_path: Path) -> None:
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/helper.py", "")
    write(tmp_path, "pack/steps.py", "import json\nfrom . import helper\ndef f(record): ...\n")
    before = list(sys.path)
    assert codes(document("pack.steps:f"), tmp_path) == []
    assert sys.path == before
    assert not [name for name in sys.modules if name.partition(".")[0] == "pack"]


def test_module_of_the_same_name_already_imported_comes_back(tmp_path: Path) -> None:
    write(tmp_path, "pluggy.py", "def f(record): ...\n")
    import pluggy

    assert codes(document("pluggy:f"), tmp_path) == []
    assert sys.modules["pluggy"] is pluggy
    assert sys.modules["pluggy._hooks"].HookspecOpts is pluggy.HookspecOpts


def test_module_that_needs_a_missing_package_fails_on_import(tmp_path: Path) -> None:
    write(tmp_path, "steps.py", "import no_such_package\n")
    (found,) = check_functions(document("steps:f"), [tmp_path])
    assert found.code == "T402"
    assert "no_such_package" in found.message


def test_broken_syntax_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "steps.py", "def f(record:\n")
    (found,) = check_functions(document("steps:f"), [tmp_path])
    assert found.code == "T402"
    assert "SyntaxError" in found.message


def test_prints_while_importing_do_not_reach_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "steps.py", "print('hello')\ndef f(record): ...\n")
    assert codes(document("steps:f"), tmp_path) == []
    assert capsys.readouterr().out == ""


def test_builtins_classes_and_captured_functions_pass(tmp_path: Path) -> None:
    assert codes(document("builtins:str", "builtins:max", "operator:neg", "captured:00ff"), tmp_path) == []


def test_method_of_a_class_is_found_by_its_qualified_name(tmp_path: Path) -> None:
    write(tmp_path, "steps.py", "class A:\n    @staticmethod\n    def f(record): ...\n    def g(self, record): ...\n")
    assert codes(document("steps:A.f", "steps:A.g", "steps:A.h"), tmp_path) == ["T405", "T403"]


def test_document_that_did_not_load_has_no_function_findings(tmp_path: Path) -> None:
    assert check_functions(load("name: 3"), [tmp_path]) == []
