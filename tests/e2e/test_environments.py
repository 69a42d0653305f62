"""Two Python environments use one home at the same time."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.other_environment import OtherEnvironment
from e2e.project import Project, project
from eventually import eventually

from treadle.orchestrator.embedded import living_drivers

FUNCTIONS = """
import os, time

def name(x, gate):
    while not os.path.exists(gate):
        time.sleep(0.02)
    import only_here
    return only_here.NAME
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    root = tmp_path / "here"
    root.mkdir()
    with project(root) as made:
        (made.root / "named.py").write_text(FUNCTIONS)
        yield made


@pytest.fixture
def there(tmp_path: Path) -> OtherEnvironment:
    return OtherEnvironment(tmp_path / "there")


def named(here: Project, name: str) -> Path:
    """A workflow whose function waits for a file, then imports a module of one environment."""
    gate = str(here.root / f"{name}.gate")
    stage = {"type": "map", "input": {"items": [1]}, "uses": "named:name", "with": {"gate": gate}}
    return here.document(name, {"only": stage})


def doubled() -> dict[str, Any]:
    return {"twice": {"type": "map", "input": {"items": [1, 2]}, "uses": "functions:double"}}


def pid_of(here: Project, environment: OtherEnvironment) -> int:
    """The process id of the environment's driver."""
    (found,) = (state.pid for which, state in living_drivers(here.home) if which.prefix == str(environment.folder))
    return found


def test_run_of_one_environment_goes_on_when_another_runs_beside_it(here: Project, there: OtherEnvironment) -> None:
    submitted = there.treadle(here, "submit", named(here, "first"), "--id", "first")
    assert submitted.returncode == 0, submitted.stderr
    before = pid_of(here, there)
    assert here.run("second", doubled()).returncode == 0
    (here.root / "first.gate").touch()
    watched = here.treadle("watch", "first")
    assert watched.returncode == 0, watched.stderr
    assert here.records("first", "only") == ["the other environment"]
    assert pid_of(here, there) == before
    status = here.treadle("dev", "status").stdout
    assert f"process {before}, of the environment {there.folder}" in status


def test_resume_starts_the_driver_of_the_environment_that_submitted(here: Project, there: OtherEnvironment) -> None:
    assert here.run("own", doubled()).returncode == 0
    assert there.treadle(here, "submit", named(here, "left"), "--id", "left").returncode == 0
    driver = pid_of(here, there)
    os.kill(driver, signal.SIGKILL)
    eventually(lambda: len(living_drivers(here.home)) == 1)
    (here.root / "left.gate").touch()
    resumed = here.treadle("resume", "left")
    assert resumed.returncode == 0, resumed.stderr
    assert f"goes on in the environment that started it: {there.folder}" in resumed.stderr
    assert here.records("left", "only") == ["the other environment"]


def test_resume_says_so_when_the_environment_that_submitted_is_gone(here: Project, there: OtherEnvironment) -> None:
    assert here.run("own", doubled()).returncode == 0
    document = here.document("lost", doubled())
    (here.root / "lost.gate").touch()
    assert there.treadle(here, "submit", named(here, "open"), "--id", "open").returncode == 0
    assert there.treadle(here, "submit", document, "--id", "over", "--start-delay", "1h").returncode == 0
    assert here.treadle("terminate", "over", "--yes").returncode == 0
    os.kill(pid_of(here, there), signal.SIGKILL)
    eventually(lambda: len(living_drivers(here.home)) == 1)
    shutil.rmtree(there.folder)
    refused = here.treadle("resume", "open")
    assert refused.returncode == 2
    assert f"another Python environment, which is gone: {there.folder}" in refused.stderr
    assert "treadle terminate" in refused.stderr
    resumed = here.treadle("resume", "over")
    assert resumed.returncode == 0, resumed.stderr
    assert "It goes on in this one" in resumed.stderr
    assert here.records("over", "twice") == [2, 4]
