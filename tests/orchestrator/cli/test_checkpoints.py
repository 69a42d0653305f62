"""A gang whose driver is killed continues from its last checkpoint, which can be read while the gang runs."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from orchestrator.commands import Terminal

from treadle.client import Client, StageCheckpoint
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import Slice
from treadle.primitives.errors import MissingError, UsageError

FUNCTIONS = """
import time
from pathlib import Path


def trains(records, *, log, flag, context):
    step, total = context.gang.restored or (0, sum(records))
    for step in range(step + 1, 6):
        with Path(log).open("a") as file:
            file.write(f"{context.partition} {step}\\n")
        while step == 4 and Path(flag).exists():
            time.sleep(0.02)
        total *= 2
        context.gang.checkpoint((step, total))
    return total
"""
DOCUMENT = """
apiVersion: treadle/v1
name: training
stages:
  fit: {{type: map, input: {{range: 4, partitions: 2}}, uses: "functions:trains", per: partition, gang: 2,
    with: {{log: "{log}", flag: "{flag}"}}}}
"""


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Terminal]:
    """A run `training`, whose two members are within step 4 until the file `flag` is removed."""
    work, home, log, flag = (tmp_path / name for name in ("work", "home", "steps", "flag"))
    for folder in (work, home):
        folder.mkdir()
    (work / "functions.py").write_text(FUNCTIONS)
    (work / "training.yaml").write_text(DOCUMENT.format(log=log, flag=flag))
    Home(home).profiles.write_text("[two]\nslots = 2\n")
    flag.touch()
    with Terminal(work, home, {"TREADLE_PROFILE": "two"}) as terminal:
        assert terminal.run("submit", "training.yaml", "--id", "training").code == 0
        eventually(lambda: log.exists() and log.read_text().count(" 4\n") == 2)
        yield terminal


def test_gang_continues_from_its_checkpoint_when_its_driver_is_killed(tmp_path: Path, training: Terminal) -> None:
    """Members are workers of the driver, and end with it."""
    driver = embedded.status(Home(tmp_path / "home")).driver
    assert driver is not None
    os.kill(driver.pid, signal.SIGKILL)
    (tmp_path / "flag").unlink()
    resumed = training.run("resume", "training")
    assert resumed.code == 0, resumed.err
    assert training.run("result", "training", "--stage", "fit").out == "32\n160\n"
    steps = Counter(line.split()[1] for line in (tmp_path / "steps").read_text().splitlines())
    assert steps == {"1": 2, "2": 2, "3": 2, "4": 4, "5": 2}


def test_checkpoints_are_read_while_the_gang_runs(tmp_path: Path, training: Terminal) -> None:
    def result(*arguments: str) -> tuple[int, str, str]:
        shown = training.run("result", "training", *arguments)
        return shown.code, shown.out, shown.err

    assert result("--stage", "fit", "--at", "last") == (0, "[3, 8]\n[3, 40]\n", "checkpoint 3 of fit\n")
    assert result("--stage", "fit", "--at", "2") == (0, "[2, 4]\n[2, 20]\n", "checkpoint 2 of fit\n")
    with Client(profile="two", home=tmp_path / "home") as client:
        stage = client.attach("training").stage("fit")
        assert stage.checkpoint() == StageCheckpoint(3, [(3, 8), (3, 40)])
        with pytest.raises(UsageError, match="keeps no checkpoint 1") as caught:
            stage.checkpoint(1)
        assert caught.value.hint == "It keeps 2 and 3."
    for arguments, error in (
        (("--at", "last"), "--at names a checkpoint of a stage"),
        (("--stage", "fit", "--at", "first"), "'first' is no checkpoint"),
        (("--stage", "none", "--at", "last"), "has no stage none"),
    ):
        code, out, err = result(*arguments)
        assert (code, out) == (2, "")
        assert error in err
    (tmp_path / "flag").unlink()
    assert result("--wait")[0] == 0
    code, out, err = result("--stage", "fit", "--at", "last")
    assert (code, out) == (2, "")
    assert "fit has no checkpoint" in err


def test_checkpoint_that_is_removed_while_it_is_read_is_read_anew(
    tmp_path: Path, training: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, gone = Blocks.get, [MissingError("gone"), MissingError("gone")]

    def late(blocks: Blocks, slice: Slice) -> Any:
        if gone:
            raise gone.pop()
        return get(blocks, slice)

    monkeypatch.setattr(Blocks, "get", late)
    with Client(profile="two", home=tmp_path / "home") as client:
        assert client.attach("training").stage("fit").checkpoint().number == 3
