"""convert: there and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from orchestrator.commands import Terminal

from treadle.dsl.document.workflow_files import load
from treadle.dsl.normalise import normalise

ROOT = Path(__file__).parents[3]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    work = tmp_path / "work"
    shutil.copytree(ROOT / "examples" / "kmeans", work)
    return Terminal(work, tmp_path / "home")


def test_a_workflow_converted_there_and_back_is_the_same(terminal: Terminal) -> None:
    assert terminal.run("convert", "kmeans.yaml", "-o", "made.py").code == 0
    back = terminal.run("convert", "made.py")
    assert back.code == 0
    (terminal.folder / "back.yaml").write_text(back.out)
    one, other = (load(terminal.folder / name).require() for name in ("kmeans.yaml", "back.yaml"))
    assert normalise(one) == normalise(other)
    assert terminal.run("validate", "made.py").code == 0


def test_convert_overwrites_nothing_and_reports_an_invalid_document(terminal: Terminal) -> None:
    refused = terminal.run("convert", "kmeans.yaml", "-o", "kmeans.py")
    assert (refused.code, "cannot be written" in refused.err) == (2, True)
    (terminal.folder / "bad.yaml").write_text("apiVersion: treadle/v1\nname: bad\nstages: {a: {type: maap}}\n")
    assert terminal.run("convert", "bad.yaml").code == 3
    assert terminal.run("convert", "absent.py").code == 3


def test_functions_without_a_name_cannot_be_written_as_yaml(terminal: Terminal) -> None:
    (terminal.folder / "captured.py").write_text(
        "from treadle.dsl import Workflow, range_\n"
        'wf = Workflow("captured")\nwf.map("double", range_(3), uses=lambda n: 2 * n)\n'
    )
    refused = terminal.run("convert", "captured.py")
    assert (refused.code, "no name that YAML could hold" in refused.err) == (2, True)
