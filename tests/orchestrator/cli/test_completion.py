"""Shell completion: the requests of the shell to `treadle`, and answers without side effects or other output."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from eventually import eventually
from orchestrator.commands import Done, Terminal

from treadle.cli.common import completion
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.triggers.registry.deployment import Deployment
from treadle.triggers.registry.registry import Registry

WORKFLOW = """
apiVersion: treadle/v1
name: orders
triggers: {late: {type: schedule, cron: "0 3 * * *"}}
stages:
  split: {type: map, input: {range: 4}, uses: functions:same}
  joined: {type: map, input: split, uses: functions:same}
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A home with the runs `nightly_1`, then `nightly_2`, and a deployed workflow; neither server nor driver lives."""
    root = tmp_path_factory.mktemp("completion")
    folder = root / "work"
    folder.mkdir()
    (folder / "orders.yaml").write_text(WORKFLOW)
    (folder / "functions.py").write_text("def same(record):\n    return record\n")
    with Terminal(folder, root / "home") as terminal:
        for number in (1, 2):
            assert terminal.run("run", "orders.yaml", "--id", f"nightly_{number}").code == 0
            os.utime(root / "home" / "store" / "runs" / f"nightly_{number}", (number, number))
        assert terminal.run("deploy", "orders.yaml").code == 0
        embedded.down(Home(terminal.home))
        yield terminal


def ask(terminal: Terminal, line: str, **environ: str) -> Done:
    """What bash does at a TAB at the end of the line."""
    words = line.split(" ")
    asked = {"_TREADLE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = terminal.run(**asked, **environ)
    assert (done.code, done.err) == (0, "")
    return done


def complete(terminal: Terminal, line: str, **environ: str) -> list[str]:
    return ask(terminal, line, **environ).out.split()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("treadle res", ["resume", "result"]),
        ("treadle dep", ["deploy"]),
        ("treadle trigger ba", ["backfill"]),
        ("treadle show --co", ["--cost"]),
        ("treadle deploy lambda --pr", ["--prune", "--profile"]),
        ("treadle deploy open", ["openwhisk"]),
        ("treadle show ", ["nightly_2", "nightly_1"]),
        ("treadle cancel nightly_1", ["nightly_1"]),
        ("treadle show day", []),
        ("treadle show nightly_1/", []),
        ("treadle logs nightly_1 --stage ", ["split", "joined"]),
        ("treadle result @last -s jo", ["joined"]),
        ("treadle limit nightly_1 sp", ["split"]),
        ("treadle resume nightly_1 --from s", ["split"]),
        ("treadle logs absent --stage ", []),
        ("treadle run ", ["functions.py", "orders.yaml", "orders"]),
        ("treadle validate ../work/ord", ["../work/orders.yaml"]),
        ("treadle undeploy o", ["orders", "openwhisk"]),
        ("treadle trigger pause or", ["orders.late"]),
    ],
)
def test_completion_answers(ended: Terminal, line: str, answer: list[str]) -> None:
    assert complete(ended, line) == answer
    assert embedded.status(Home(ended.home)) == embedded.EmbeddedStatus(None, None)


def test_completion_leaves_paths_to_the_shell_where_no_workflow_begins_so(ended: Terminal) -> None:
    assert complete(ended, "treadle run ../wo") == complete(ended, "treadle run absent/") == []


def test_completion_makes_no_home(ended: Terminal, tmp_path: Path) -> None:
    assert complete(ended, "treadle show ", TREADLE_HOME=str(tmp_path / "absent")) == []
    assert not (tmp_path / "absent").exists()


def test_completion_is_silent_when_the_profile_is_damaged(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, tmp_path / "home")
    Home(terminal.home).profiles.write_text("[lab\n")
    assert complete(terminal, "treadle show --profile lab ") == []


def test_completion_names_child_runs_below_their_parent(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, tmp_path / "home")
    for folder in ("nightly/_load", "nightly/_load-2", "nightly/segments", "nightly_3"):
        (Home(terminal.home).store / "runs" / folder).mkdir(parents=True)
    assert complete(terminal, "treadle show nightly/lo") == ["nightly/load", "nightly/load-2"]


def test_completion_asks_temporal_for_runs_of_a_store_elsewhere(ended: Terminal) -> None:
    profiles = Home(ended.home).profiles
    profiles.write_text('[away]\nstore = "s3://bucket/treadle"\n')
    line = "treadle show --profile away nightly_"
    try:
        assert complete(ended, line) == []
        assert embedded.running_server(Home(ended.home)) is None
        embedded.ensure_server(Home(ended.home))
        # a busy machine may not answer within the time limit
        eventually(lambda: sorted(complete(ended, line)) == ["nightly_1", "nightly_2"])
    finally:
        embedded.end_server(Home(ended.home))
        profiles.unlink()


def test_completion_gives_up_at_its_time_limit(ended: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, never = threading.Event(), threading.Event()

    def hang(_: Registry) -> list[Deployment]:
        asked.set()
        never.wait()
        return []

    monkeypatch.setattr(Registry, "deployments", hang)
    monkeypatch.setattr(completion, "TIME_LIMIT", 0.2)
    monkeypatch.setenv("TREADLE_HOME", str(ended.home))
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))
    assert completion.complete_deployed(context, "o") == []
    assert asked.wait(10)
    never.set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(ended: Terminal, shell: str) -> None:
    done = ended.run(_TREADLE_COMPLETE=f"source_{shell}")
    assert done.code == 0
    assert f"complete_{shell}" in done.out


def test_deploy_without_a_file_is_a_usage_error(ended: Terminal) -> None:
    done = ended.run("deploy")
    assert done.code == 2
    assert "Missing argument 'FILE'" in done.err
