"""Each Python environment that uses a home has its own driver, folder and task queue."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from eventually import eventually

from treadle.orchestrator.embedded import (
    down,
    end_driver,
    ensure_driver,
    ensure_server,
    living_drivers,
    release,
    up,
)
from treadle.orchestrator.embedded.driver_process import DriverFiles, driver_alive
from treadle.orchestrator.embedded.python_environments import (
    FIRST,
    EnvironmentGone,
    PythonEnvironment,
    known_environments,
    name_in,
    name_of,
    other_environment,
    queue_of,
    register,
    this_environment,
)
from treadle.orchestrator.embedded.server import server_alive
from treadle.orchestrator.environment.home import Home

SERVES = """
import asyncio, sys
from treadle.orchestrator.embedded.driver_lease import DriverLease
from treadle.orchestrator.environment.home import Home

home = Home(sys.argv[sys.argv.index("--home") + 1])
lease = DriverLease.take(home)

def idle():
    return 0.0 if (home.driver / f"busy{lease.name}").exists() else 1e9

async def main():
    with lease:
        lease.ready()
        await lease.until_end(idle, limit=1.0, interval=0.05)

asyncio.run(main())
"""


@dataclass
class Two:
    """A home, this process's environment and another one, and a module that replaces their drivers."""

    home: Home
    first: PythonEnvironment
    second: PythonEnvironment
    module: str = "serves"

    @property
    def name(self) -> str:
        return name_of(self.home, self.second)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    (tmp_path / "serves.py").write_text(textwrap.dedent(SERVES))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first = this_environment()
    second = PythonEnvironment(first.prefix, first.version, (*first.path, str(tmp_path / "more")), first.executable)
    home = Home(tmp_path / "home")
    register(home)
    yield Two(home, first, second)
    down(home)


def test_first_environment_has_the_plain_folder_and_queue(two: Two) -> None:
    assert name_of(two.home) == FIRST
    assert DriverFiles(two.home).alive == two.home.driver / "alive.lock"
    assert queue_of("treadle", FIRST) == "treadle"


def test_second_environment_has_its_own_folder_and_queue(two: Two) -> None:
    name = register(two.home, two.second)
    assert name == two.second.digest != two.first.digest
    assert DriverFiles(two.home, name).alive == two.home.driver / name / "alive.lock"
    assert name_in(queue_of("treadle", name)) == name
    assert dict(known_environments(two.home)) == {FIRST: two.first, name: two.second}


def test_damaged_record_of_the_first_environment_is_written_again(two: Two) -> None:
    (two.home.driver / "environment.json").write_text("{")
    assert register(two.home, two.second) == FIRST
    assert dict(known_environments(two.home)) == {FIRST: two.second}


def test_other_environment_is_named_by_its_queue_while_it_exists(two: Two) -> None:
    name = register(two.home, two.second)
    assert other_environment(two.home, "treadle") is None
    assert other_environment(two.home, queue_of("treadle", name)) == two.second
    with pytest.raises(EnvironmentGone, match="which is gone: 0123abcd"):
        other_environment(two.home, "treadle@0123abcd")


def test_relative_entry_of_the_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert this_environment({"PYTHONPATH": f"lib{os.pathsep}"}).path == (str(tmp_path / "lib"),)


def test_start_of_a_second_driver_leaves_the_first_one_alone(two: Two) -> None:
    for name in (FIRST, two.name):
        (two.home.driver / f"busy{name}").touch()
    ensure_server(two.home)
    first = ensure_driver(two.home, module=two.module)
    second = ensure_driver(two.home, module=two.module, environment=two.second)
    assert first.pid != second.pid
    assert living_drivers(two.home) == [(two.first, first), (two.second, second)]
    assert end_driver(two.home, two.name)
    assert living_drivers(two.home) == [(two.first, first)]


def test_idle_driver_leaves_the_server_to_the_driver_of_another_environment(two: Two) -> None:
    """The last driver ends the server too."""
    for name in (FIRST, two.name):
        (two.home.driver / f"busy{name}").touch()
    up(two.home, module=two.module)
    up(two.home, module=two.module, environment=two.second)
    release(two.home)
    (two.home.driver / "busy").unlink()
    eventually(lambda: not driver_alive(two.home, FIRST))
    assert driver_alive(two.home, two.name)
    assert server_alive(two.home)
    (two.home.driver / f"busy{two.name}").unlink()
    eventually(lambda: not driver_alive(two.home, two.name))
    assert not server_alive(two.home)


def test_driver_is_replaced_when_other_distributions_are_installed(two: Two) -> None:
    (two.home.driver / "busy").touch()
    ensure_server(two.home)
    first = ensure_driver(two.home, module=two.module)
    (Path(two.first.path[0]) / "late-1.0.dist-info").mkdir()
    assert ensure_driver(two.home, module=two.module).pid != first.pid
