"""The run that a command refers to, and its output about the run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestrator.commands import Done, Terminal

WORKFLOW = (
    "apiVersion: treadle/v1\nname: named\ninputs: {flag: {type: string, default: none}}\nstages:\n"
    '  bad: {type: map, input: {range: 3}, uses: functions:fails_while, with: {flag: "${{ inputs.flag }}"},'
    " retry: {maximumAttempts: 1}}\n"
)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One server and driver, and two finished runs: `good` and `bad`."""
    root = tmp_path_factory.mktemp("naming")
    work = root / "work"
    work.mkdir()
    shutil.copy(Path(__file__).parents[1] / "cli_functions.py", work / "functions.py")
    (work / "named.yaml").write_text(WORKFLOW)
    (work / "always").touch()
    with Terminal(work, root / "home") as terminal:
        assert terminal.run("run", "named.yaml", "--id", "good").code == 0
        assert terminal.run("run", "named.yaml", "--id", "bad", "-i", f"flag={work / 'always'}").code == 1
        yield terminal


def ok(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


def test_show_has_the_inputs_of_a_run(terminal: Terminal) -> None:
    assert json.loads(ok(terminal.run("show", "good", "-o", "json")).out)["inputs"] == {"flag": "none"}
    assert "inputs    flag = none\n" in ok(terminal.run("show", "good")).out


def test_list_says_when_there_are_more_runs_than_it_shows(terminal: Terminal) -> None:
    short = ok(terminal.run("list", "--limit", "1", "-o", "json"))
    assert len(json.loads(short.out)) == 1
    assert "there are more runs than these 1: --limit N" in short.err
    assert "more runs" not in ok(terminal.run("list", "--limit", "1000")).err


def test_lines_of_logs_have_one_time(terminal: Terminal) -> None:
    logged = [line for line in terminal.run("watch", "bad", "--logs").err.splitlines() if "failed finally" in line]
    assert logged
    assert not [line for line in logged if re.match(r"(\d\d:\d\d:\d\d ){2}", line)]


def test_run_shown_by_the_beginning_of_its_id_is_named_on_stderr(terminal: Terminal) -> None:
    assert ok(terminal.run("result", "goo")).err.splitlines()[0] == "run good"
    assert "run good" not in ok(terminal.run("result", "good")).err


def test_ids_of_runs_differ_by_case(terminal: Terminal) -> None:
    done = terminal.run("result", "GOO")
    assert (done.code, done.out) == (4, "")
    assert "there is no run GOO\n  Did you mean good? Write the whole id." in done.err


@pytest.mark.parametrize("verb", ["resume", "rerun", "cancel", "terminate", "pause", "unpause"])
@pytest.mark.parametrize("text", ["GOOD", "goo"])
def test_verb_that_changes_a_run_takes_its_whole_id_only(terminal: Terminal, verb: str, text: str) -> None:
    done = terminal.run(verb, text)
    assert (done.code, done.out) == (4, "")
    assert f"there is no run {text}\n  Did you mean good? Write the whole id." in done.err
