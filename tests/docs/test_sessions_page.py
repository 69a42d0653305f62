"""The scripts of docs/sessions.md, against a server of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from doc_pages import ROOT, blocks, write_files

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PAGE = ROOT / "docs/sessions.md"


def test_scripts_print_the_output_that_the_page_shows(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    home = tmp_path / "home"
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    try:
        for console in blocks(PAGE, "console"):
            command, shown = console.text.split("\n", 1)
            program = [sys.executable, command.removeprefix("$ python ")]
            done = subprocess.run(program, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
            assert done.stdout == shown
    finally:
        embedded.down(Home(home))
