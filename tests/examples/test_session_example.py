"""The example of a session, against a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

EXAMPLE = Path(__file__).parents[2] / "examples/session/calls.py"


def test_example_counts_words_and_finds_the_degree_of_the_curve(tmp_path: Path) -> None:
    for number, text in enumerate(("the sun the sea", "The sun", "a star")):
        (tmp_path / f"{number}.txt").write_text(text)
    home = tmp_path / "home"
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    try:
        program = [sys.executable, str(EXAMPLE), f"{tmp_path}/*.txt"]
        done = subprocess.run(program, env=environ, capture_output=True, text=True, check=True)
    finally:
        embedded.down(Home(home))
    assert done.stdout.splitlines() == ["frequent: the, sun, sea", "degree: 3"]
