"""The program in docs/client.md, as a script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_program_of_the_client_page_prints_its_table(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (tmp_path / "squares.py").write_text(program)
    try:
        done = subprocess.run(
            [sys.executable, "squares.py"],
            cwd=tmp_path,
            env={**os.environ, "TREADLE_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        embedded.down(Home(tmp_path / "home"))
    assert done.stdout == "{'n': [1, 2, 3], 'square': [1, 4, 9]}\n", done.stderr
