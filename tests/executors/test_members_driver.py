"""A dying driver takes its members along. The next one calls new members, and held blocks are recomputed.

Everything except the provider is real: the command line, the embedded server, driver processes that are killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.lambda_place import LambdaPlace, lambda_place
from eventually import eventually
from orchestrator.commands import Terminal
from orchestrator.dispatcher.test_executors_adopted import FUNCTIONS, PATIENCE, kill_driver, write_workflow

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
MEMBERS = """[functions.executors.lambda.members]
coordinator = "tcp://127.0.0.1:0"
direct = true
"""


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path / "lambda", concurrency=12) as place:
        yield place


@pytest.fixture
def terminal(tmp_path: Path, functions: LambdaPlace) -> Iterator[Terminal]:
    work, home = tmp_path / "work", Home(tmp_path / "home")
    (work / "texts").mkdir(parents=True)
    (work / "wordy.py").write_text(FUNCTIONS)
    functions.deploy(str(home.key))
    home.profiles.write_text(functions.profile(concurrency=3) + MEMBERS)
    try:
        yield Terminal(work, home.path, {**functions.emulator.credentials, "TREADLE_PROFILE": "functions"})
    finally:
        embedded.down(home)


def test_a_run_on_members_outlives_its_drivers(terminal: Terminal, functions: LambdaPlace) -> None:
    tasks = 40
    wanted = write_workflow(terminal, tasks, seconds=0.3)
    document = terminal.folder / "wordcount.yaml"
    document.write_text(document.read_text().replace(", executor: local", ""))
    submitted = terminal.run("submit", "wordcount.yaml", "--id", "staying")
    assert submitted.code == 0, submitted.err
    for number in (1, 2):
        committed(terminal, number * tasks // 3)
        kill_driver(terminal)
        resumed = terminal.run("resume", "staying", "--detach")
        assert resumed.code == 0, resumed.err
    watched = terminal.start("watch", "staying").wait(PATIENCE + 2 * tasks)
    assert watched.code == 0, watched.err
    found = terminal.run("result", "staying", "--stage", "count")
    assert dict(json.loads(line) for line in found.out.splitlines()) == wanted, found.err
    assert len(functions.emulator.taken) <= 3 * 3, "a call for each member of three drivers"


def committed(terminal: Terminal, count: int) -> None:
    """Wait until this many tasks have counted."""

    def counted() -> bool:
        shown = terminal.run("show", "staying", "-o", "json")
        stages = json.loads(shown.out)["stages"] if shown.code == 0 else []
        return bool(sum(one["committed"] for one in stages) >= count)

    eventually(counted)
