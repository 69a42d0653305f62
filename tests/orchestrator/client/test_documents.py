"""The folder from which the modules of a Workflow are taken."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from treadle.client.documents import load_checked
from treadle.dsl import Workflow, range_


def base() -> Path:
    workflow = Workflow("based")
    workflow.map("numbers", range_(2), uses="builtins:str")
    return load_checked(workflow).base


def test_base_of_a_workflow_is_the_folder_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "script.py"), raising=False)
    assert base() == tmp_path


@pytest.mark.parametrize("program", [pytest.__file__, f"{sysconfig.get_path('scripts')}/pytest", None])
def test_base_of_a_workflow_is_the_current_folder_in_a_program(
    program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", program, raising=False)
    monkeypatch.chdir(tmp_path)
    assert base() == tmp_path
