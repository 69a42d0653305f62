"""Ctrl-C ends a command without a traceback, at any point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have had ignored

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from treadle.cli import main

sys.argv = ["treadle", {command!r}, *{arguments!r}]
main()
"""
"""A module finder that raises Ctrl-C while a module is looked for."""
MODULES = (
    "typer",
    "treadle.cli.commands",
    "treadle.cli.watch",
    "treadle.primitives.errors",
)


def interrupted(module: str, command: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    code = INTERRUPTED.format(module=module, command=command, arguments=arguments)
    environ = {"TREADLE_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_while_modules_are_imported_is_quiet(module: str, tmp_path: Path) -> None:
    done = interrupted(module, "--help", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_inside_a_command_is_reported(tmp_path: Path) -> None:
    done = interrupted("treadle.dsl.document.document", "validate", "absent.yaml", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "treadle: interrupted\n")
