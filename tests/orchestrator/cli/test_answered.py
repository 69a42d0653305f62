"""Commands that the running driver answers: the same output as without it, and no Temporal SDK in the command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventually import eventually
from orchestrator.commands import Terminal

from treadle.client import Client
from treadle.orchestrator.embedded.detached_process import write_state
from treadle.orchestrator.embedded.driver_process import DriverFiles, DriverState, running_driver
from treadle.orchestrator.embedded.server import was_started
from treadle.orchestrator.environment.home import Home

FUNCTIONS = Path(__file__).parents[1] / "cli_functions.py"
HELD = """
apiVersion: treadle/v1
name: held
labels: {team: a}
stages:
  kept: {type: map, input: {range: 4, partitions: 1}, uses: functions:pair}
  gate: {type: barrier, input: kept}
  held: {type: map, input: gate, uses: functions:waits, with: {flag: "FLAG"}}
"""
FAILS = """
apiVersion: treadle/v1
name: fails
defaults: {retry: {maximumAttempts: 1}}
stages:
  bad: {type: map, input: {range: 4}, uses: functions:fails_while, with: {flag: "FLAG"}}
"""
FINE = """
apiVersion: treadle/v1
name: fine
stages:
  total: {type: reduce, input: {range: 10}, per: all, uses: functions:total, metrics: {total: integer}}
outputs: {sum: "${{ stages.total.metrics.total }}"}
"""
MODULES = """
import json, sys
from treadle.cli.commands import app
try: app(sys.argv[1:], standalone_mode=False)
except SystemExit as end: assert not end.code, end.code
heavy = ("temporalio", "pydantic", "treadle.dsl.model")
print(json.dumps([name for name in heavy if name in sys.modules]), file=sys.stderr)
"""
STATES = {"done": "succeeded", "failed": "failed", "cancelled": "cancelled", "ended": "terminated", "held": "running"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answered")


@pytest.fixture(scope="module")
def early(root: Path) -> Iterator[Client]:
    """A client that has listed the runs of the home before the first one was started."""
    with Client(home=root / "home") as client:
        assert client.list() == []
        assert not was_started(Home(root / "home"))
        yield client


@pytest.fixture(scope="module")
def terminal(root: Path, early: Client) -> Iterator[Terminal]:
    """A home with a run in each state."""
    assert early
    work, flag = root / "work", root / "flag"
    work.mkdir()
    flag.touch()
    shutil.copy(FUNCTIONS, work / "functions.py")
    for name, text in (("held", HELD), ("fails", FAILS), ("fine", FINE)):
        (work / f"{name}.yaml").write_text(text.replace("FLAG", str(flag)))
    with Terminal(work, root / "home") as terminal:
        assert terminal.run("run", "fine.yaml", "--id", "done").code == 0
        assert terminal.run("run", "fails.yaml", "--id", "failed").code == 1
        for run in ("cancelled", "ended", "held"):
            assert terminal.run("submit", "held.yaml", "--id", run).code == 0
        assert terminal.run("cancel", "cancelled", "--yes").code == 0
        assert terminal.run("terminate", "ended", "--yes").code == 0
        eventually(lambda: shown(terminal, "cancelled")["state"] == "cancelled")
        eventually(lambda: [one["running"] for one in shown(terminal, "held")["stages"]][-1] > 0)
        yield terminal
        flag.unlink()


def shown(terminal: Terminal, run: str) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(terminal.run("show", run, "-o", "json").out)
    return about


def driver(terminal: Terminal) -> DriverState:
    state = running_driver(Home(terminal.home))
    assert state is not None
    return state


@contextmanager
def mute(terminal: Terminal) -> Iterator[None]:
    """Commands do not find the driver's socket, and ask Temporal themselves."""
    state, file = driver(terminal), DriverFiles(Home(terminal.home)).state
    assert state.address.startswith("unix:")
    write_state(file, msgspec.structs.replace(state, address=""))
    try:
        yield
    finally:
        write_state(file, state)


@pytest.mark.parametrize("run", STATES)
def test_show_has_the_same_output_with_and_without_the_driver(terminal: Terminal, run: str) -> None:
    answered = shown(terminal, run)
    with mute(terminal):
        assert shown(terminal, run) == answered
    assert answered["state"] == STATES[run]


def test_list_has_the_same_output_with_and_without_the_driver(terminal: Terminal) -> None:
    arguments = [[], ["--status", "failed"], ["--label", "team=a"], ["--limit", "2"], ["--since", "2000-01-01"]]
    answered = [terminal.run("list", "-o", "json", *more) for more in arguments]
    with mute(terminal):
        assert [terminal.run("list", "-o", "json", *more).out for more in arguments] == [one.out for one in answered]
    assert {one["run"]: one["state"] for one in json.loads(answered[0].out)} == STATES
    assert [len(json.loads(one.out)) for one in answered] == [5, 1, 3, 2, 5]


def test_client_of_a_home_without_runs_lists_later_ones(terminal: Terminal, early: Client) -> None:
    assert terminal.count
    assert {one.run: one.state for one in early.list()} == STATES


def test_home_without_runs_has_no_server_after_commands_that_look_for_one(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, tmp_path / "home")
    assert imported(terminal, "list") == []
    for words in ("show @last", "show nosuch", "logs nosuch", "result nosuch", "pause nosuch", "cancel nosuch"):
        done = terminal.run(*words.split())
        assert done.code == 4, words
        assert "there is no run" in done.err
    assert not was_started(Home(terminal.home))


@pytest.mark.parametrize("words", ["list", "show held", "show failed", "result done", "logs failed"])
def test_view_that_the_driver_answers_imports_neither_temporal_nor_pydantic(terminal: Terminal, words: str) -> None:
    assert imported(terminal, *words.split()) == []


@pytest.mark.parametrize("words", ["pause held", "unpause held"])
def test_command_that_the_driver_answers_imports_no_temporal(terminal: Terminal, words: str) -> None:
    assert "temporalio" not in imported(terminal, *words.split())


def imported(terminal: Terminal, *words: str) -> list[str]:
    environ = {**os.environ, "TREADLE_HOME": str(terminal.home)}
    command = [sys.executable, "-c", MODULES, *words]
    done = subprocess.run(command, cwd=terminal.folder, env=environ, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


def test_command_with_another_key_than_the_driver_says_what_to_do(terminal: Terminal) -> None:
    key = Home(terminal.home).key
    known = key.read_bytes()
    key.write_bytes(bytes(32))
    try:
        done = terminal.run("list")
    finally:
        key.write_bytes(known)
    assert done.code == 2
    assert "the driver of this home does not accept this command" in done.err
    assert "treadle dev down" in done.err


def test_command_asks_temporal_itself_while_the_driver_is_stopped_or_dead(terminal: Terminal) -> None:
    answered, pid = terminal.run("list", "-o", "json").out, driver(terminal).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert terminal.run("list", "-o", "json").out == answered
    finally:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: running_driver(Home(terminal.home)) is None)
    assert terminal.run("list", "-o", "json").out == answered
    assert shown(terminal, "held")["drivers"] == 0


@pytest.mark.parametrize("words", ["run fine.yaml --id again", "resume done", "watch again", "cancel held --yes"])
def test_command_that_runs_or_watches_imports_no_temporal(terminal: Terminal, words: str) -> None:
    assert "temporalio" not in imported(terminal, *words.split())
