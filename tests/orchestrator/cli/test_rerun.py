"""rerun and report: a new run with the definition of another, and a page about a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestrator.commands import Terminal

FUNCTIONS = "def times(number: int, *, factor: int) -> int:\n    return number * factor\n"
WORKFLOW = """
apiVersion: treadle/v1
name: scaled
inputs: {factor: {type: integer, default: 3}, count: {type: integer, required: true}}
stages:
  numbers:
    {type: map, input: {range: "${{ inputs.count }}"}, uses: "scaling:times", with: {factor: "${{ inputs.factor }}"}}
"""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One run, `first`, whose files have been removed since."""
    root = tmp_path_factory.mktemp("rerun")
    work = root / "work"
    work.mkdir()
    (work / "scaling.py").write_text(FUNCTIONS)
    (work / "scaled.yaml").write_text(WORKFLOW)
    with Terminal(work, root / "home", {"TREADLE_PROFILE": "two"}) as terminal:
        terminal.home.mkdir(mode=0o700)
        (terminal.home / "profiles.toml").write_text('[two.executors.apart]\nkind = "isolated"\n')
        assert terminal.run("run", "scaled.yaml", "-i", "count=4", "--id", "first").code == 0
        assert terminal.run("run", "scaled.yaml", "-i", "count=1", "--id", "apart", "--executor", "apart").code == 0
        shutil.rmtree(work / "__pycache__", ignore_errors=True)
        for file in work.iterdir():
            file.unlink()
        yield terminal


def records(terminal: Terminal, run: str) -> list[int]:
    return [json.loads(line) for line in terminal.run("result", run, "--stage", "numbers").out.splitlines()]


def test_a_run_is_repeated_with_its_own_code_and_inputs_after_the_files_are_gone(terminal: Terminal) -> None:
    done = terminal.run("rerun", "first", "--id", "second", "--watch")
    assert (done.code, done.out.splitlines()[0]) == (0, "second")
    assert records(terminal, "second") == records(terminal, "first") == [0, 3, 6, 9]


def test_inputs_given_to_a_rerun_differ_and_the_others_stay(terminal: Terminal) -> None:
    assert terminal.run("rerun", "first", "-i", "factor=10", "--id", "tenfold", "--watch").code == 0
    assert records(terminal, "tenfold") == [0, 10, 20, 30]


def test_a_rerun_that_would_not_do_is_refused_and_nothing_starts(terminal: Terminal) -> None:
    wrong = terminal.run("rerun", "first", "-i", "factor=many", "--id", "wrong")
    assert (wrong.code, wrong.out) == (2, "")
    assert terminal.run("rerun", "nothing").code == 4
    assert terminal.run("rerun", "first", "--id", "first").code == 7
    dry = terminal.run("rerun", "first", "--id", "dry", "--dry-run")
    assert (dry.code, dry.out) == (0, "")
    assert "would start run dry" in dry.err
    assert {"wrong", "dry"}.isdisjoint(terminal.run("list").out.split())


def test_an_executor_given_to_a_rerun_takes_the_place_of_the_one_given_before(terminal: Terminal) -> None:
    assert "runs on apart" in terminal.run("rerun", "apart", "--dry-run").err
    here = terminal.run("rerun", "apart", "--dry-run", "--executor", "local")
    assert (here.code, "runs on apart" in here.err) == (0, False)
    assert terminal.run("rerun", "apart", "--dry-run", "--executor", "nowhere").code == 2


def test_a_report_is_a_page_with_every_task_of_the_run(terminal: Terminal) -> None:
    done = terminal.run("report", "first")
    assert (done.code, done.out) == (0, "")
    assert "wrote first.html" in done.err
    page = (terminal.folder / "first.html").read_text("utf-8")
    data = json.loads(page.partition('id="attempts">')[2].partition("</script>")[0])
    assert sorted(data["partition"]) == [0, 1, 2, 3]
    assert terminal.run("report", "first", "-o", "-").out.startswith("<!doctype html>")


def test_a_report_that_cannot_be_written_or_of_no_run_says_so(terminal: Terminal) -> None:
    assert terminal.run("report", "nothing").code == 4
    done = terminal.run("report", "first", "-o", str(Path("absent") / "page.html"))
    assert done.code == 2
    assert "cannot be written" in done.err
