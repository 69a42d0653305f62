"""Runs programs as a user does: `python -m treadle.multiprocessing program.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the text of a program in a folder."""
    (folder / "program.py").write_text(dedent(program))
    command = [sys.executable, "-m", "treadle.multiprocessing", "program.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)


def output(folder: Path, program: str) -> list[str]:
    """Return the lines that a program prints. It must succeed, and print no error."""
    done = run(folder, program)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()
