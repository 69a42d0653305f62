"""The surroundings of a task: variables, folder and modules are the same in every run, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.project import Project, project

FUNCTIONS = """
import os, sys
from pathlib import Path

seen = []

def around(x):
    seen.append(x)
    found = sorted(os.listdir())
    Path("left").write_text("x")
    folder = os.path.realpath(os.getcwd())
    names = {name: os.environ.get(name) for name in ("MYVAR", "HOME", "AWS_PROFILE", "PATH", "MODEL")}
    return {"seen": len(seen), "found": found, "folder": folder, **names}
"""
ONCE = """
import sys
import json  # outlives the runs of a process, as every library does

if sys.argv[0].endswith("worker/main.py"):
    if hasattr(json, "registered"):
        raise RuntimeError("already registered")
    json.registered = True

def f(x):
    return x
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path, MYVAR="of the first command") as made:
        (tmp_path / "around.py").write_text(FUNCTIONS)
        (tmp_path / "once.py").write_text(ONCE)
        made.home.profiles.write_text('[own]\nslots = 1\nenvironment = { MODEL = "/models/small" }\n')
        yield made


def mapped(uses: str) -> dict[str, Any]:
    return {"only": {"type": "map", "input": {"items": [1, 2], "partitions": 2}, "uses": uses}}


def test_task_environment_does_not_depend_on_the_command_that_started_the_driver(here: Project) -> None:
    first = here.run("first", mapped("around:around"), "--profile", "own")
    assert first.returncode == 0, first.stderr
    here.environ["MYVAR"] = "of another command"
    second = here.run("second", mapped("around:around"), "--profile", "own")
    assert second.returncode == 0, second.stderr
    records = here.records("first", "only")
    assert [record["seen"] for record in records] == [1, 2]
    for record in records + here.records("second", "only"):
        assert (record["MYVAR"], record["MODEL"], record["found"]) == (None, "/models/small", [])
        assert not Path(record["folder"]).is_relative_to(here.home.path)
    assert [record["seen"] for record in here.records("second", "only")] == [1, 2]


def test_module_that_can_be_imported_once_only_gets_a_new_process_in_the_next_run(here: Project) -> None:
    for run in ("first", "second"):
        done = here.run(run, mapped("once:f"), "--profile", "own")
        assert done.returncode == 0, done.stderr
        assert here.records(run, "only") == [1, 2]


def test_command_with_other_credentials_has_a_driver_with_those(here: Project) -> None:
    here.environ["AWS_PROFILE"] = "one"
    assert here.run("first", mapped("around:around")).returncode == 0
    here.environ["AWS_PROFILE"] = "two"
    assert here.run("second", mapped("around:around")).returncode == 0
    found = [here.records(run, "only")[0]["AWS_PROFILE"] for run in ("first", "second")]
    assert found == ["one", "two"]


def test_command_with_other_credentials_is_refused_while_a_run_needs_the_driver(here: Project) -> None:
    here.environ["AWS_PROFILE"] = "one"
    log = str(here.root / "log")
    here.submit("waits", {"slow": {**mapped("functions:gated")["only"], "with": {"log": log, "free": 0}}})
    here.environ["AWS_PROFILE"] = "two"
    refused = here.run("second", mapped("around:around"))
    assert refused.returncode == 2
    assert "AWS_PROFILE" in refused.stderr
    (here.root / "log.gate").touch()
    here.environ["AWS_PROFILE"] = "one"
    assert here.treadle("watch", "waits").returncode == 0
