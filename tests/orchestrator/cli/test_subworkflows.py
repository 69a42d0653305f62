"""Sub-workflows on the command line: files that change, drivers that die, and the inspection of children."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from orchestrator.cli.test_runs import code
from orchestrator.commands import Terminal

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

FUNCTIONS = Path(__file__).parents[1] / "cli_functions.py"
BUSY = 150
"""Seconds that a new driver may take on a busy machine."""
HEAD = "apiVersion: treadle/v1\nname: {name}\ndefaults: {{retry: {{maximumAttempts: 1}}}}\n"
LOAD = """
inputs:
  lines: {type: integer, default: 3}
  flag: {type: string, default: "absent"}
stages:
  noted: {type: map, input: {range: "${{ inputs.lines }}"}, uses: "functions:noted", with: {log: noted.log}}
  held: {type: map, input: noted, needs: [noted], uses: functions:waits, with: {flag: "${{ inputs.flag }}"}}
  fine: {type: map, input: held, needs: [held], uses: functions:fails_while, with: {flag: "${{ inputs.flag }}.bad"}}
  total: {type: reduce, input: fine, per: all, uses: functions:total, metrics: {total: integer}}
outputs: {total: "${{ stages.total.metrics.total }}"}
"""
MAIN = """
inputs: {flag: {type: string, default: absent}}
stages:
  first: {type: workflow, uses: ./parts/load.yaml, with: {flag: "${{ inputs.flag }}"}}
  second: {type: workflow, uses: ./parts/load.yaml, with: {lines: "${{ stages.first.outputs.total }}"}}
outputs: {first: "${{ stages.first.outputs.total }}", second: "${{ stages.second.outputs.total }}"}
"""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    root = tmp_path_factory.mktemp("children")
    work = root / "work"
    (work / "parts").mkdir(parents=True)
    shutil.copy(FUNCTIONS, work / "functions.py")
    (work / "main.yaml").write_text(HEAD.format(name="main") + "labels: {team: loading}\n" + MAIN)
    (work / "parts" / "load.yaml").write_text(HEAD.format(name="load") + LOAD.replace("noted.log", str(work / "log")))
    with Terminal(work, root / "home") as terminal:
        yield terminal


@pytest.fixture(scope="module")
def seen(terminal: Terminal) -> Terminal:
    """A terminal with a successful run `seen`."""
    code(terminal.run("run", "main.yaml", "--id", "seen"), 0)
    return terminal


def kill_driver(terminal: Terminal) -> None:
    state = embedded.status(Home(terminal.home))
    assert state.driver is not None
    os.kill(state.driver.pid, signal.SIGKILL)


@pytest.mark.timeout(3 * BUSY)
def test_child_survives_its_driver_and_the_editing_of_its_file(terminal: Terminal) -> None:
    flag, file = terminal.folder / "flag", terminal.folder / "parts" / "load.yaml"
    flag.touch()
    text = file.read_text()
    running = terminal.start("run", "main.yaml", "--id", "kept", "-i", f"flag={flag}")
    eventually(lambda: "first → kept/first: running 3/" in running.err.read_text(), BUSY)
    file.write_text(text.replace("range: ", "range: 7").replace("functions:total", "functions:absent"))
    kill_driver(terminal)
    try:
        flag.unlink()
        resumed = terminal.start("resume", "kept").wait(BUSY)
        running.wait(BUSY)
    finally:
        file.write_text(text)
    assert json.loads(code(resumed, 0).out) == {"first": 3, "second": 3}
    assert sorted((terminal.folder / "log").read_text().splitlines()) == sorted(2 * [f"noted {n}" for n in range(3)])


def test_failed_child_is_found_from_its_parent(terminal: Terminal) -> None:
    bad = terminal.folder / "mended.bad"
    bad.touch()
    failed = terminal.run("run", "main.yaml", "--id", "sick", "-i", f"flag={terminal.folder / 'mended'}")
    assert failed.code == 1
    assert "run sick failed after" in failed.err
    assert "user error: run sick/first: " in failed.err
    assert "treadle logs sick/first\n" in failed.err
    assert "the warehouse is closed" in code(terminal.run("logs", "sick/first"), 0).out
    shown = json.loads(code(terminal.run("show", "sick", "-o", "json"), 0).out)
    first, second = shown["stages"]
    assert (first["kind"], first["state"], first["run"]) == ("workflow", "failed", "sick/first")
    assert (first["partitions"], first["committed"]) == (10, 8)
    assert second["state"] == "waiting"
    alone = terminal.run("resume", "sick/first")
    assert alone.code == 2
    assert "run sick/first is a part of run sick" in alone.err
    assert "mended: treadle resume sick. " in terminal.run("watch", "sick/first").err
    bad.unlink()
    resumed = code(terminal.run("resume", "sick"), 0)
    assert json.loads(resumed.out) == {"first": 3, "second": 3}


def test_children_are_listed_when_asked_for_and_shown_like_runs(seen: Terminal) -> None:
    terminal = seen
    assert "seen/" not in code(terminal.run("list"), 0).out
    below = json.loads(code(terminal.run("list", "--children", "seen", "-o", "json"), 0).out)
    assert {one["run"]: one["workflow"] for one in below} == {"seen/first": "load", "seen/second": "load"}
    labelled = code(terminal.run("list", "--children", "see", "--label", "team=loading", "-o", "json"), 0).out
    assert json.loads(labelled) == below, "a beginning names the run; children have the labels of their parent"
    assert code(terminal.run("list", "--children", "seen", "--label", "team=other"), 0).out == ""
    assert terminal.run("list", "--children", "seen", "--trigger", "a.b").code == 2
    assert terminal.run("list", "--children", "never-was").code == 4
    shown = code(terminal.run("show", "seen"), 0).out
    assert "first → seen/first" in shown
    assert "10/10" in shown
    assert json.loads(code(terminal.run("show", "seen/second", "-o", "json"), 0).out)["outputs"] == {"total": 3}
    assert code(terminal.run("result", "seen/first", "--stage", "held"), 0).out == "0\n1\n2\n"
    code(terminal.run("report", "seen"), 0)
    assert 'href="seen-first.html"' in (terminal.folder / "seen.html").read_text()
    code(terminal.run("report", "seen/first"), 0)
    assert (terminal.folder / "seen-first.html").exists()


def test_cost_of_a_run_is_that_of_its_children_too(seen: Terminal) -> None:
    bill = json.loads(code(seen.run("show", "seen", "--cost", "-o", "json"), 0).out)["cost"]
    lines = {line["node"]: line["usage"] for line in bill["lines"]}
    assert {"(run)", "first/(run)", "first/held", "second/total"} <= set(lines)
    alone = json.loads(code(seen.run("show", "seen/first", "--cost", "-o", "json"), 0).out)["cost"]
    for line in alone["lines"]:
        assert lines[f"first/{line['node']}"] == line["usage"]
    assert bill["usage"]["attempts"] == sum(usage["attempts"] for usage in lines.values()) == 20


def test_rerun_starts_the_children_anew(seen: Terminal) -> None:
    again = code(seen.run("rerun", "seen", "--id", "copy", "--watch"), 0)
    assert '"first": 3' in again.out
    assert json.loads(code(seen.run("show", "copy/first", "-o", "json"), 0).out)["outputs"] == {"total": 3}


def test_plan_shows_a_child_where_its_inputs_are_known(terminal: Terminal) -> None:
    text = code(terminal.run("plan", "main.yaml"), 0).out
    assert "run the workflow load" in text
    assert "\n  first/noted  3 partitions" in text
    assert "second/noted" not in text
    assert "planned when it starts: its inputs come from other stages" in text
    assert "its stages: noted (map), held (map), fine (map), total (reduce)" in text
    graph = code(terminal.run("plan", "main.yaml", "--graph", "mermaid"), 0).out
    names = dict(re.findall(r'(n\d+)\["([^"<]+)<', graph))
    edges = {(names[source], names[target]) for source, target in re.findall(r"(n\d+) --> (n\d+)", graph)}
    assert {("first", "noted"), ("first", "second")} <= edges
    estimate = json.loads(code(terminal.run("plan", "main.yaml", "--cost", "-o", "json"), 0).out)["estimate"]
    assert "first/noted" in {line["node"] for line in estimate["lines"]}


def test_mistake_in_a_child_is_reported_at_its_place(terminal: Terminal) -> None:
    wrong = HEAD.format(name="wrong") + "stages: {a: {type: workflow, uses: parts/wrong.yaml}}\n"
    (terminal.folder / "wrong.yaml").write_text(wrong)
    inner = HEAD.format(name="inner") + "stages: {a: {type: map, input: {range: 1}, uses: functions:absent}}\n"
    (terminal.folder / "parts" / "wrong.yaml").write_text(inner)
    done = terminal.run("validate", "wrong.yaml")
    assert "parts/wrong.yaml:4:50: error[T403] 'functions' has no 'absent'" in done.out
    assert done.code == terminal.run("run", "wrong.yaml").code == 3


def test_child_that_could_never_be_planned_refuses_the_run_at_its_place(terminal: Terminal) -> None:
    (terminal.folder / "early.yaml").write_text(
        HEAD.format(name="early") + "stages:\n  sub: {type: workflow, uses: parts/files.yaml}\n"
    )
    (terminal.folder / "parts" / "files.yaml").write_text(
        HEAD.format(name="files")
        + "stages:\n  a: {type: map, input: {uri: 'absent/*.txt', format: text}, uses: functions:line}\n"
    )
    done = terminal.run("submit", "early.yaml")
    assert done.code == 2
    assert "sub: " in done.err
    assert "absent/*.txt" in done.err


AGAIN = """
stages:
  seen: {type: map, input: {range: 1}, uses: "functions:read", with: {file: number}}
  total: {type: reduce, input: seen, per: all, uses: "functions:total", metrics: {total: integer}}
  sub: {type: workflow, uses: ./parts/load.yaml, with: {lines: "${{ stages.total.metrics.total }}"}}
  bad: {type: map, input: {items: [5]}, uses: "functions:fails_while", with: {flag: closed}, needs: [sub]}
outputs: {total: "${{ stages.sub.outputs.total }}"}
"""


@pytest.fixture
def failed(terminal: Terminal) -> tuple[Terminal, Path, Path]:
    """A terminal with a workflow that fails after its child while a file exists; that file, and the child's input."""
    number, closed = terminal.folder / "number", terminal.folder / "closed"
    text = AGAIN.replace("file: number", f"file: {number}").replace("flag: closed", f"flag: {closed}")
    (terminal.folder / "again.yaml").write_text(HEAD.format(name="again") + text)
    number.write_text("3")
    closed.touch()
    return terminal, number, closed


def test_child_restarts_with_the_new_values_of_the_stages_before_it(failed: tuple[Terminal, Path, Path]) -> None:
    terminal, number, closed = failed
    code(terminal.run("run", "again.yaml", "--id", "again"), 1)
    number.write_text("4")
    closed.unlink()
    told = code(terminal.run("resume", "again", "--explain", "--from", "seen"), 0).out
    assert "sub → again/sub: runs again\n" in told
    resumed = code(terminal.run("resume", "again", "--from", "seen"), 0)
    assert json.loads(resumed.out) == {"total": 0 + 1 + 2 + 3}
    assert "sub → again/sub-2" in code(terminal.run("show", "again"), 0).out
    assert json.loads(code(terminal.run("show", "again/sub", "-o", "json"), 0).out)["outputs"] == {"total": 3}
    below = json.loads(code(terminal.run("list", "--children", "again", "-o", "json"), 0).out)
    assert {one["run"] for one in below} == {"again/sub", "again/sub-2"}


def test_child_goes_on_from_one_of_its_stages_through_its_parent(failed: tuple[Terminal, Path, Path]) -> None:
    terminal, _, closed = failed
    log = terminal.folder / "log"
    code(terminal.run("run", "again.yaml", "--id", "inside"), 1)
    before = log.read_text()
    closed.unlink()
    alone = terminal.run("resume", "inside/sub", "--from", "held")
    assert alone.code == 2
    assert "treadle resume inside --from sub/held" in alone.err
    told = code(terminal.run("resume", "inside", "--explain", "--from", "sub/held"), 0).out
    assert "sub → inside/sub: of it runs again: held, fine" in told
    resumed = code(terminal.run("resume", "inside", "--from", "sub/held"), 0)
    assert "runs again: sub/held, sub/fine" in resumed.err
    assert json.loads(resumed.out) == {"total": 3}
    assert log.read_text() == before, "what comes before it in the child is kept"
    assert json.loads(code(terminal.run("show", "inside/sub", "-o", "json"), 0).out)["resumption"] == 2


def test_gc_removes_children_with_their_parent(seen: Terminal) -> None:
    """The last test, since it removes the runs of the others too."""
    runs = seen.home / "store" / "runs"
    assert (runs / "seen" / "_first" / "spec").exists()
    removed = json.loads(code(seen.run("gc", "--older-than", "0s", "-o", "json"), 0).out)
    assert "seen" in {one["run"] for one in removed}
    assert not (runs / "seen").exists()
