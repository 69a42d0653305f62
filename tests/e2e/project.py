"""A user's folder: a home, documents, functions, and the `treadle` command on them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from eventually import eventually
from orchestrator.commands import treadle

from treadle.orchestrator.embedded import down, running_driver
from treadle.orchestrator.embedded.driver_process import driver_alive
from treadle.orchestrator.environment.home import Home

HERE = Path(__file__).parent
TREADLE = str(Path(sys.executable).with_name("treadle"))


class Project:
    """One environment. Its runs have different ids."""

    def __init__(self, root: Path, **environ: str) -> None:
        self.root = root
        self.home = Home(root / "home")
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
        self.environ = {**known, "TREADLE_HOME": str(root / "home"), "TREADLE_IDLE": "10m"}
        self.environ |= {"XDG_CACHE_HOME": str(root / "cache"), **environ}
        shutil.copy(HERE / "functions.py", root / "functions.py")

    def treadle(self, *arguments: object, timeout: float = 100) -> subprocess.CompletedProcess[str]:
        return treadle(*arguments, folder=self.root, environ=self.environ, timeout=timeout)

    def document(self, name: str, stages: dict[str, Any], folder: Path | None = None, **more: Any) -> Path:
        """Write a workflow."""
        path = (folder or self.root) / f"{name}.yaml"
        spec = {"apiVersion": "treadle/v1", "name": name.replace("-", "_"), "stages": stages, **more}
        path.write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), "utf-8")
        return path

    def run(
        self, run: str, stages: dict[str, Any], *arguments: object, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Write a workflow, run it, and watch it."""
        return self.treadle("run", self.document(run, stages, **more), "--id", run, *arguments)

    def submit(self, run: str, stages: dict[str, Any], *arguments: object, **more: Any) -> None:
        done = self.treadle("submit", self.document(run, stages, **more), "--id", run, *arguments)
        assert done.returncode == 0, done

    def records(self, run: str, stage: str) -> list[Any]:
        done = self.treadle("result", run, "--stage", stage)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def written(self, uri: str) -> list[Any]:
        """The records of a JSON lines output."""
        parts = sorted((self.root / uri).glob("part-*"))
        return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]

    def kill_driver(self) -> None:
        driver = running_driver(self.home)
        if driver is not None:
            os.kill(driver.pid, signal.SIGKILL)
        eventually(lambda: not driver_alive(self.home))

    def show(self, run: str) -> dict[str, Any]:
        done = self.treadle("show", run, "-o", "json")
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def notes(self, log: str) -> list[list[str]]:
        """The functions' log: event, stage, partition, attempt, seconds since boot, process."""
        path = self.root / log
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        down(self.home)


@contextmanager
def project(root: Path, **environ: str) -> Iterator[Project]:
    made = Project(root, **environ)
    try:
        yield made
    finally:
        made.close()


def overlaps(notes: list[list[str]]) -> int:
    """The maximum number of concurrent attempts."""
    moments = sorted((float(when), 1 if what == "start" else -1) for what, _, _, _, when, _ in notes)
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most
