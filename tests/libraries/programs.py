"""Runs programs as a user does: `python -m treadle.multiprocessing program.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from treadle.orchestrator.environment.home import Home


def cluster(home: Home, profile: str) -> dict[str, str]:
    """The variables with which processes run at the workers of a profile."""
    return {"TREADLE_HOME": str(home.path), "TREADLE_PROFILE": profile, "TREADLE_PEERS": "tls://127.0.0.1:0"}


def run(
    folder: Path, program: str, *arguments: str, environ: Mapping[str, str] | None = None, executor: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the text of a program in a folder. `executor`: where its processes run, if not on this machine."""
    (folder / "program.py").write_text(dedent(program))
    options = ["--executor", executor] if executor else []
    command = [sys.executable, "-m", "treadle.multiprocessing", *options, "program.py", *arguments]
    environ = {**os.environ, **(environ or {})}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200, env=environ)


def output(folder: Path, program: str, environ: Mapping[str, str] | None = None, executor: str = "") -> list[str]:
    """Return the lines that a program prints. It must succeed, and print no error."""
    done = run(folder, program, environ=environ, executor=executor)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()
