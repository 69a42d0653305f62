"""A driver dies and leaves functions running. The next driver takes their results, and calls no function twice.

Everything except the provider is real: the command line, the embedded server, a driver process that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.lambda_place import SIZES, LambdaPlace, lambda_place
from eventually import eventually
from orchestrator.commands import Terminal

from treadle.orchestrator import embedded
from treadle.orchestrator.embedded.driver_process import driver_alive
from treadle.orchestrator.environment.home import Home

FUNCTIONS = """
import time

def words(line, *, seconds):
    time.sleep(seconds)
    for word in line.split():
        yield word, 1

def add(a, b):
    return a + b
"""
WORDCOUNT = """
apiVersion: treadle/v1
name: wordcount
defaults: {{backups: false}}  # of a call that a busy machine holds up
stages:
  words:
    type: map
    input: {{uri: "texts/*.txt", format: text}}
    uses: wordy:words
    flat: true
    with: {{seconds: {seconds}}}
  group: {{type: shuffle, input: words, by: key, partitions: 2}}
  count: {{type: reduce, input: group, per: key, combine: wordy:add, executor: local}}
outputs: {{}}
"""
PATIENCE = 100
"""Seconds that a busy machine may take for one second of work."""


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path / "lambda") as place:
        yield place


@pytest.fixture
def terminal(tmp_path: Path, functions: LambdaPlace) -> Iterator[Terminal]:
    """A folder with the workflow, and a home whose driver calls the emulated Lambda."""
    work, home = tmp_path / "work", Home(tmp_path / "home")
    (work / "texts").mkdir(parents=True)
    (work / "wordy.py").write_text(FUNCTIONS)
    functions.deploy(str(home.key))
    home.profiles.write_text(functions.profile(sizes=SIZES, concurrency=4))
    environ = {**functions.emulator.credentials, "TREADLE_PROFILE": "functions"}
    with Terminal(work, home.path, environ) as terminal:
        yield terminal


def write_workflow(terminal: Terminal, tasks: int, seconds: float) -> Counter[str]:
    """Write one small file for each task. Returns the expected counts of the words."""
    (terminal.folder / "wordcount.yaml").write_text(WORDCOUNT.format(seconds=seconds))
    wanted: Counter[str] = Counter()
    for number in range(tasks):
        line = f"word{number % 7} word{number % 3} other"
        (terminal.folder / "texts" / f"{number:04d}.txt").write_text(line + "\n")
        wanted.update(line.split())
    return wanted


def kill_driver(terminal: Terminal) -> None:
    home = Home(terminal.home)
    driver = embedded.running_driver(home)
    assert driver is not None
    os.kill(driver.pid, signal.SIGKILL)
    while driver_alive(home):
        time.sleep(0.01)


def wait_for_calls(functions: LambdaPlace, count: int) -> None:
    eventually(lambda: len(functions.emulator.taken) >= count)


def check_adoption(terminal: Terminal, functions: LambdaPlace, tasks: int, seconds: float, kills: int) -> None:
    wanted = write_workflow(terminal, tasks, seconds)
    submitted = terminal.run("submit", "wordcount.yaml", "--id", "adopted")
    assert submitted.code == 0, submitted.err
    for number in range(1, kills + 1):
        wait_for_calls(functions, number * tasks // (kills + 1))
        kill_driver(terminal)
        resumed = terminal.run("resume", "adopted", "--detach")
        assert resumed.code == 0, resumed.err
    watched = terminal.start("watch", "adopted").wait(PATIENCE + tasks * (seconds + 0.5))
    assert watched.code == 0, watched.err
    found = terminal.run("result", "adopted", "--stage", "count")
    assert dict(json.loads(line) for line in found.out.splitlines()) == wanted, found.err
    assert len(functions.emulator.taken) == tasks, "a call was made twice"


def test_calls_under_way_are_adopted_by_the_next_driver(terminal: Terminal, functions: LambdaPlace) -> None:
    check_adoption(terminal, functions, tasks=50, seconds=0.3, kills=1)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_thousand_calls_are_made_once_though_drivers_die(terminal: Terminal, functions: LambdaPlace) -> None:
    check_adoption(terminal, functions, tasks=1000, seconds=0.3, kills=4)
