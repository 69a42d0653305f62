"""The tests of docs/testing.md, run by pytest as the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from doc_pages import ROOT, blocks, write_files

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PAGE = ROOT / "docs" / "testing.md"


def test_tests_of_the_page_pass(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    [console] = blocks(PAGE, "console")
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/made"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(program, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    embedded.down(Home(tmp_path / "made" / "home0"))
    assert done.returncode == 0, done.stdout
    assert summary(done.stdout) == summary(console.text)


def summary(output: str) -> str:
    """The number of tests that passed."""
    [found] = re.findall(r"^\d+ passed", output, re.M)
    return str(found)
