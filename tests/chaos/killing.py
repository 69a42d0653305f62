"""A run in a separate environment, whose driver and server are killed from outside."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from orchestrator.commands import treadle

from treadle.orchestrator.dispatcher.ledger.ledger import ChainEntry, Committed
from treadle.orchestrator.embedded import down, running_driver, running_server
from treadle.orchestrator.embedded.driver_process import driver_alive
from treadle.orchestrator.environment.home import Home
from treadle.primitives.sealing import load_or_create_key, run_key, unseal
from treadle.primitives.stores.store import Store

HERE = Path(__file__).parent
TREADLE = str(Path(sys.executable).with_name("treadle"))
GRANULE = 0.02
"""Seconds. The clock of the file system is coarser."""
DYING = 0.1
"""Seconds that the workers of a dead driver may take to die. A worker may begin its next partition in this time."""


@dataclass
class Attempt:
    started: float
    ended: float | None = None


@dataclass
class Log:
    """The log that the user functions write."""

    path: Path

    def attempts(self) -> dict[tuple[str, str], list[Attempt]]:
        """(stage, partition) -> its attempts, in order of their starts."""
        found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            what, stage, partition, _, when = line.split()
            if what == "start":
                found[stage, partition].append(Attempt(float(when)))
            else:
                found[stage, partition][-1].ended = float(when)
        return found

    def starts_after(self, moment: float) -> list[float]:
        return sorted(a.started for attempts in self.attempts().values() for a in attempts if a.started > moment)


@dataclass
class Sandbox:
    """A home, a command line in it, and a record of the kills."""

    root: Path
    kills: list[tuple[float, float]] = field(default_factory=list)
    """(start of the kill, time when all killed processes were certainly gone) for each kill."""
    restarts: list[float] = field(default_factory=list)
    """Seconds from a new driver's start to the first task's."""
    log_name: str = "log"

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @property
    def log(self) -> Log:
        return Log(self.root / self.log_name)

    def new_log(self, name: str) -> Log:
        """A new log, to which tasks write from now on."""
        self.log_name = name
        return self.log

    def environ(self) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
        return {**known, "TREADLE_HOME": str(self.root / "home"), "TREADLE_IDLE": "10m"}

    def treadle(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return treadle(*arguments, folder=self.root, environ=self.environ(), timeout=timeout)

    def submit(self, workflow: str, run: str, **inputs: object) -> None:
        pairs = [word for name, value in inputs.items() for word in ("-i", f"{name}={value}")]
        done = self.treadle("submit", str(HERE / workflow), "--id", run, *pairs)
        assert done.returncode == 0, done.stderr

    def kill(self, *, server: bool) -> None:
        """Send SIGKILL, and wait until the processes are gone."""
        driver, running = running_driver(self.home), running_server(self.home)
        begin = time.monotonic()
        for state in (driver, running if server else None):
            if state is not None:
                os.kill(state.pid, signal.SIGKILL)
        while driver_alive(self.home):
            time.sleep(0.01)
        self.kills.append((begin, time.monotonic() + DYING))

    def resume(self, run: str) -> None:
        done = self.treadle("resume", run, "--detach")
        assert done.returncode == 0, done.stderr

    def wait_for_task(self, since: float, run: str = "", timeout: float = 60) -> float | None:
        """The time of the first task start after `since`. None: the run ended before."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            starts = self.log.starts_after(since)
            if starts:
                return starts[0]
            time.sleep(0.05)
            if run and time.monotonic() > since + 5 and self._is_over(run):
                return None
        raise AssertionError(f"no task began within {timeout} s")

    def _is_over(self, run: str) -> bool:
        done = self.treadle("show", run, "-o", "json")
        return bool(json.loads(done.stdout)["state"] != "running")

    def note_restart(self, first_start: float) -> None:
        driver = running_driver(self.home)
        assert driver is not None
        self.restarts.append(first_start - (driver.started - time.time() + time.monotonic()))

    def close(self) -> None:
        down(self.home)


def restarted_after_commit(sandbox: Sandbox, run: str, log: Log) -> list[str]:
    """Attempts that began after their partition was committed.

    Exact on a machine of any speed: the modification time of a ledger object is the time of its commits.
    """
    boot = time.time() - time.monotonic()
    commits: dict[tuple[str, int], float] = {}
    for segment, partition, written in written_commits(sandbox, run):
        commits[segment, partition] = min(written - boot, commits.get((segment, partition), math.inf))
    return [
        f"{stage}[{partition}] began {late:.3f} s after its commit"
        for (stage, partition), attempts in log.attempts().items()
        for attempt in attempts
        if (late := attempt.started - commits[_segment(stage), int(partition)]) > GRANULE
    ]


def written_commits(sandbox: Sandbox, run: str) -> Iterator[tuple[str, int, float]]:
    """(segment, partition, time of the write) of every commit in the run's ledgers."""
    store = Store.open(sandbox.home.store.as_uri())
    key = run_key(load_or_create_key(sandbox.home.key), run)
    for info in store.list(f"runs/{run}/segments/"):
        if "/ledger/" in info.name:
            entry = msgspec.msgpack.decode(unseal(key, info.name, store.get(info.name)), type=ChainEntry)
            written = (sandbox.home.store / info.name).stat().st_mtime
            commits = (record for record in entry.records if isinstance(record, Committed))
            yield from ((record.segment, record.outcome.partition, written) for record in commits)


def _segment(stage: str) -> str:
    """`lloyd[3].assign` runs in the segment `lloyd-3/assign`. Outside of loops the names are equal."""
    return stage.replace("[", "-").replace("].", "/")


def finished_and_repeated(log: Log, kills: list[tuple[float, float]]) -> list[float]:
    """For each attempt that ended before a kill and ran again: seconds from its end to that kill."""
    return [
        begin - first.ended
        for attempts in log.attempts().values()
        for first, second in itertools.pairwise(attempts)
        for begin, _ in kills
        if first.ended is not None and first.ended < begin <= second.started
    ]
