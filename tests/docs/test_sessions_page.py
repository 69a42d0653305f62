"""The scripts of the pages about sessions, objects and multiprocessing, against a server of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks, write_files

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home


@pytest.mark.parametrize("name", ["sessions", "objects", "multiprocessing"])
def test_scripts_print_the_output_that_the_page_shows(name: str, tmp_path: Path) -> None:
    page = ROOT / f"docs/{name}.md"
    write_files(page, tmp_path)
    home = tmp_path / "home"
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    try:
        for console in blocks(page, "console"):
            command, shown = console.text.split("\n", 1)
            program = [sys.executable, *command.removeprefix("$ python ").split()]
            done = subprocess.run(program, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
            assert done.stdout == shown
    finally:
        embedded.down(Home(home))
