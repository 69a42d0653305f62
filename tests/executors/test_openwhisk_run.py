"""`treadle deploy openwhisk`, `run --executor openwhisk` and `result`, as typed, with the emulated OpenWhisk.

Everything except the provider is real: the command line, the embedded server, a driver process, the action's zip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.openwhisk import GENEROUS, openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator
from orchestrator.commands import Terminal

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

FUNCTIONS = """
def words(line):
    return line.split()

def one(word):
    return word, 1

def add(a, b):
    return a + b
"""
WORDCOUNT = """
apiVersion: treadle/v1
name: wordcount
stages:
  words: {type: map, input: {uri: "texts/*.txt", format: text}, uses: "worded:words", flat: true}
  pairs: {type: map, input: words, uses: "worded:one"}
  group: {type: shuffle, input: pairs, by: key, partitions: 3}
  count: {type: reduce, input: group, per: key, combine: "worded:add"}
outputs: {}
"""
PROFILE = """
[lab.executors.openwhisk]
endpoint = "{endpoint}"
sizes = [256]
timeout = "60s"
concurrency = 3
files = true
"""
MEMBERS = """
[lab.executors.openwhisk.members]
coordinator = "tcp://127.0.0.1:0"
"""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk"), GENEROUS) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, emulator: OpenWhiskEmulator) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("installation")
    work, home = folder / "work", Home(folder / "home")
    (work / "texts").mkdir(parents=True)
    for number in range(4):
        (work / "texts" / f"{number}.txt").write_text("the loom the treadle\n" * (number + 1))
    (work / "worded.py").write_text(FUNCTIONS)
    (work / "wordcount.yaml").write_text(WORDCOUNT)
    secret = home.secrets / "openwhisk"
    secret.touch(mode=0o600)
    secret.write_text(emulator.key)
    terminal = Terminal(work, home.path, {"TREADLE_PROFILE": "lab"})
    profile(terminal, emulator)
    try:
        done = terminal.run("deploy", "openwhisk")
        assert (done.code, done.out) == (0, "action treadle-256: new\n"), done.err
        yield terminal
    finally:
        embedded.down(home)


def profile(terminal: Terminal, emulator: OpenWhiskEmulator, more: str = "") -> None:
    Path(terminal.home, "profiles.toml").write_text(PROFILE.format(endpoint=emulator.endpoint) + more)


def check_run(terminal: Terminal, name: str) -> None:
    done = terminal.run("run", "wordcount.yaml", "--executor", "openwhisk", "--id", name)
    assert done.code == 0, done.err
    found = terminal.run("result", name, "--stage", "count")
    counted = dict(json.loads(line) for line in found.out.splitlines())
    assert counted == {"the": 20, "loom": 10, "treadle": 10}, found.err


def test_a_workflow_runs_on_openwhisk_through_a_profile(terminal: Terminal, emulator: OpenWhiskEmulator) -> None:
    before = len(emulator.activations)
    check_run(terminal, "words")
    assert len(emulator.activations) - before == 4 + 3, "an activation for each task"


def test_the_same_workflow_runs_on_actions_that_stay(terminal: Terminal, emulator: OpenWhiskEmulator) -> None:
    profile(terminal, emulator, MEMBERS)
    embedded.down(Home(terminal.home))
    planned = terminal.run("plan", "wordcount.yaml", "--executor", "openwhisk")
    assert "runs on openwhisk/members" in planned.out, planned.err
    assert "blocks stay with the functions that make them, and openwhisk pulls them over TCP" in planned.out
    before = len(emulator.activations)
    check_run(terminal, "words-2")
    assert 1 <= len(emulator.activations) - before <= 3, "an activation for each member, and none for a task"
