"""Modes of files: outputs follow the umask of the user, everything of treadle's own is private."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
from orchestrator.commands import Terminal

TREADLE = str(Path(sysconfig.get_path("scripts"), "treadle"))
WORKFLOW = """
apiVersion: treadle/v1
name: modes
stages:
  written:
    type: map
    input: {range: 4}
    uses: functions:touch
    with: {folder: "FOLDER"}
    output: {uri: out, format: jsonl}
"""
FUNCTIONS = """
import pathlib

def touch(record, folder):
    pathlib.Path(folder, f"{record}.txt").touch()
    return record
"""


def modes(folder: Path) -> set[tuple[str, int]]:
    """("file" or "folder", its mode) of everything below a folder."""
    paths = [*folder.rglob("*"), folder]
    return {("folder" if path.is_dir() else "file", path.stat().st_mode & 0o777) for path in paths}


@pytest.mark.parametrize(("umask", "file", "folder"), [(0o022, 0o644, 0o755), (0o002, 0o664, 0o775)])
def test_outputs_follow_the_umask_when_the_home_is_private(tmp_path: Path, umask: int, file: int, folder: int) -> None:
    work, touched, home = (tmp_path / name for name in ("work", "touched", "home"))
    work.mkdir()
    touched.mkdir()
    (work / "modes.yaml").write_text(WORKFLOW.replace("FOLDER", str(touched)))
    (work / "functions.py").write_text(FUNCTIONS)
    line = f"umask {umask:03o}; {shlex.quote(TREADLE)} run modes.yaml"
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    with Terminal(work, home):
        done = subprocess.run(["sh", "-c", line], cwd=work, env=environ, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert modes(work / "out") == {("file", file), ("folder", folder)}
        assert {mode for path in touched.iterdir() if (mode := path.stat().st_mode & 0o777)} == {file}
        assert all(mode & 0o077 == 0 for _, mode in modes(home))
