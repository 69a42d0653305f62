"""The supported versions of Python are the same in the pyproject files and in the script that checks them."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "pythons.sh"
MEMBERS = ["primitives", "executors", "dsl", "orchestrator", "libraries/multiprocessing", "meta"]


def checked() -> list[str]:
    found = re.search(r"^supported=\(([^)]*)\)", SCRIPT.read_text(), re.MULTILINE)
    assert found
    return found[1].split()


@pytest.mark.parametrize("member", MEMBERS)
def test_classifiers_of_a_member_are_the_versions_checked(member: str) -> None:
    project = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    versions = [each.removeprefix(prefix) for each in project["classifiers"] if each.startswith(prefix)]
    assert versions == checked()
    assert project["requires-python"] == f">={versions[0]}"


def test_core_of_the_tests_is_there() -> None:
    found = re.search(r"^core=\((.*?)^\)", SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    names = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {' '.join(found[1].split())}"], capture_output=True, text=True
    )
    assert [name for name in names.stdout.split() if not (ROOT / name).exists()] == []


def test_a_python_that_is_missing_is_named_as_not_checked(tmp_path: Path) -> None:
    """Uses a uv that finds one version only, whose tests fail at once."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    uv = tmp_path / ".venv" / "bin" / "uv"
    uv.write_text('#!/bin/sh\ncase "$*" in *find*3.12) echo /none;; *) exit 1;; esac\n')
    uv.chmod(0o700)
    script = tmp_path / "tests" / "pythons.sh"
    script.write_text(SCRIPT.read_text())
    done = subprocess.run(["bash", script, "matrix"], capture_output=True, text=True, check=False, env=dict(os.environ))
    missing = [version for version in checked() if version != "3.12"]
    said = [f"not checked: Python {version}, which this machine does not have" for version in missing]
    failed = [f"failed: Python 3.12 {resolution}" for resolution in ("lowest-direct", "highest")]
    assert done.stdout.splitlines()[-5:] == [*said, *failed]
    assert done.returncode == 1
