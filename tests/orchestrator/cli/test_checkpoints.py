"""A gang whose driver is killed continues from its last checkpoint."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from eventually import eventually
from orchestrator.commands import Terminal

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

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


def test_gang_continues_from_its_checkpoint_when_its_driver_is_killed(tmp_path: Path) -> None:
    """Both members are within step 4. Members are workers of the driver, and end with it."""
    work, home, log, flag = (tmp_path / name for name in ("work", "home", "steps", "flag"))
    for folder in (work, home):
        folder.mkdir()
    (work / "functions.py").write_text(FUNCTIONS)
    (work / "training.yaml").write_text(DOCUMENT.format(log=log, flag=flag))
    Home(home).profiles.write_text("[two]\nslots = 2\n")
    flag.touch()
    with Terminal(work, home, {"TREADLE_PROFILE": "two"}) as terminal:
        assert terminal.run("submit", "training.yaml", "--id", "killed").code == 0
        eventually(lambda: log.exists() and log.read_text().count(" 4\n") == 2)
        driver = embedded.status(Home(home)).driver
        assert driver is not None
        os.kill(driver.pid, signal.SIGKILL)
        flag.unlink()
        resumed = terminal.run("resume", "killed")
        assert resumed.code == 0, resumed.err
        assert terminal.run("result", "killed", "--stage", "fit").out == "32\n160\n"
    steps = Counter(line.split()[1] for line in log.read_text().splitlines())
    assert steps == {"1": 2, "2": 2, "3": 2, "4": 4, "5": 2}
