"""Commands with different profiles in one home, whose driver serves one profile at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestrator.commands import Terminal

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

WAITS = (
    "apiVersion: treadle/v1\nname: waiting\ninputs: {flag: {type: string, default: none}}\nstages:\n"
    '  waits: {type: map, input: {range: 2}, uses: functions:waits, with: {flag: "${{ inputs.flag }}"}}\n'
)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    work, home = tmp_path / "work", Home(tmp_path / "home")
    work.mkdir()
    shutil.copy(Path(__file__).parents[1] / "cli_functions.py", work / "functions.py")
    (work / "waits.yaml").write_text(WAITS)
    home.profiles.write_text("[one]\nslots = 1\n\n[two]\nslots = 2\n")
    with Terminal(work, home.path) as terminal:
        yield terminal


@pytest.mark.parametrize("verb", ["cancel", "pause", "rerun"])
def test_a_run_that_there_is_not_starts_no_driver(terminal: Terminal, verb: str) -> None:
    assert terminal.run(verb, "never-was").code == 4
    assert "driver  none" in terminal.run("dev", "status").out


def test_commands_that_are_suggested_have_the_profile_that_was_given(terminal: Terminal) -> None:
    flag = terminal.folder / "flag"
    flag.touch()
    left = terminal.run(
        "run", "waits.yaml", "--id", "left", "-i", f"flag={flag}", "--profile", "one", "--timeout", "100ms"
    )
    assert (left.code, left.err.splitlines()[-1]) == (124, "  treadle watch --profile one left")
    assert "treadle watch --profile one left" in terminal.run("cancel", "left", "--profile", "one").err
    flag.unlink()
    assert "treadle resume --profile one left" in terminal.run("watch", "left", "--profile", "one").err


def test_driver_of_another_profile_gives_way_only_when_no_run_needs_it(terminal: Terminal) -> None:
    assert terminal.run("run", "waits.yaml", "--profile", "one").code == 0
    first = embedded.status(Home(terminal.home)).driver
    flag = terminal.folder / "flag"
    flag.touch()
    held = terminal.run("submit", "waits.yaml", "--id", "held", "-i", f"flag={flag}", "--profile", "two")
    second = embedded.status(Home(terminal.home)).driver
    assert (held.code, first and second and first.pid != second.pid) == (0, True), held.err
    refused = terminal.run("submit", "waits.yaml", "--profile", "one")
    assert refused.code == 2
    assert "busy with another profile, which differs in slots" in refused.err
    flag.unlink()
    assert terminal.run("watch", "held", "--profile", "two").code == 0
    assert terminal.run("run", "waits.yaml", "--profile", "one").code == 0
