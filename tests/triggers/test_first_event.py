"""The newcomer's path of docs/triggers.md exactly as written: from an empty folder to a run that an event starts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka import Broker

PAGE = Path(__file__).parents[2] / "docs" / "triggers.md"
ADDRESS = "127.0.0.1:9092"
"""The page's broker. The test's broker has another address."""


def commands() -> list[str]:
    section = PAGE.read_text("utf-8").split("\n## A first event\n")[1].split("\n## ")[0]
    return re.findall(r"^\$ (.*)$", section, re.M)


class Shell:
    """A user's terminals: commands in the folder and with the variables of the earlier commands."""

    def __init__(self, home: Path, broker: str) -> None:
        self.folder, self.broker = home, broker
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
        paths = f"{Path(sys.executable).parent}:{known['PATH']}"
        self.environ = known | {"HOME": str(home), "PATH": paths, "TREADLE_IDLE": "10m", "KAFKA": broker}

    def do(self, command: str) -> subprocess.CompletedProcess[str]:
        if command.startswith("cd "):
            self.folder = self.folder / command.removeprefix("cd ")
            self._move_broker()
        elif command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environ[name] = value
        else:
            return self._run(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        known = {"cwd": self.folder, "env": self.environ, "timeout": 100}
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, **known)  # type: ignore[call-overload,no-any-return]

    def _move_broker(self) -> None:
        for file in self.folder.glob("profiles.toml"):
            file.write_text(file.read_text("utf-8").replace(ADDRESS, self.broker), "utf-8")

    @contextmanager
    def background(self, command: str) -> Iterator[None]:
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.mark.timeout(300)
def test_first_event_starts_a_run_as_the_page_says(real_kafka: Broker, tmp_path: Path) -> None:
    shell = Shell(tmp_path, real_kafka.bootstrap)
    before, service, after = split(commands(), "treadle triggers")
    try:
        for command in before:
            done = shell.do(command)
            assert done.returncode == 0, (command, done)
        with shell.background(service):
            for command in after:
                done = shell.do(command)
                assert done.returncode == 0, (command, done)
                if command.startswith("treadle watch"):
                    assert re.search(r"run etl\.live\.\S+ succeeded", done.stderr), done
        totals = [line for file in shell.folder.glob("out/*/totals/*.csv") for line in file.read_text().splitlines()]
        assert "ada,12.5" in totals
        assert "etl.live  kafka  1" in done.stdout
    finally:
        shell.do("treadle dev down")


def split(lines: list[str], at: str) -> tuple[list[str], str, list[str]]:
    index = lines.index(at)
    return lines[:index], lines[index], lines[index + 1 :]
