"""The script of docs/client.md and the notebooks of the examples, against a server of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from doc_pages import ROOT, blocks, write_files
from nbclient import NotebookClient

from treadle.client import Futures, attach
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PAGE = ROOT / "docs/client.md"
NOTEBOOKS = ROOT / "examples/notebook"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("client") / "home"
    yield folder
    embedded.down(Home(folder))


def test_script_of_the_page_prints_what_the_page_shows(home: Path, tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    [console] = blocks(PAGE, "console")
    command, shown = console.text.splitlines()
    program = [sys.executable, command.removeprefix("$ python ")]
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    done = subprocess.run(program, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"{shown}\n"


def executed(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """The outputs of a notebook by the id of their cell."""
    monkeypatch.setenv("TREADLE_HOME", str(home))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return {cell["id"]: cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"}


def test_notebook_draws_workflow_and_run_and_shows_a_traceback(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = executed("squares.ipynb", home, monkeypatch)
    assert "<svg" in found["define"][0]["data"]["text/html"]
    drawn = found["run"][-1]["data"]["text/html"]
    assert re.search(r"squares-[\w-]+</b> succeeded", drawn)
    assert "done" in drawn
    assert found["table"][0]["data"]["text/plain"] == "{'n': [1, 2, 3], 'square': [1, 4, 9]}"
    error = printed(found["failing"])
    assert "user error: squares: 1 partition failed" in error
    assert "TypeError: unsupported operand type(s) for ** or pow()" in error
    assert "in square" in error


def printed(outputs: list[Any]) -> str:
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_cells_that_run_again_in_a_new_kernel_find_their_calls(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (executed("bootstrap.ipynb", home, monkeypatch) for _ in range(2))
    assert re.fullmatch(r"slope 2\.99\d to 3\.0\d\d\n", printed(first["map"]))
    assert printed(first["histogram"]).count("#") == 200
    assert [printed(second[cell]) for cell in first] == [printed(first[cell]) for cell in first]
    with attach("bootstrap", home=home) as s:
        assert [len(one) if isinstance(one, Futures) else 1 for one in s.futures()] == [200, 1]
