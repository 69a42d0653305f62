"""A child process for each rival, measured in turn. A rival that fails or times out loses its own turn only.

Rounds go from rival to rival and around again, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.settings import BENCH, BENCH_DIR, SHARED_MEMORY

from treadle.orchestrator.environment.home import Home
from workloads.settings import PROJECT, RIVALS, Entry, Sizes, own

_STARTS = 3
"""Starts of a rival before it is given up."""


class Failed(Exception):
    """A rival's failure, in its own words."""


@dataclass
class Limits:
    """`rounds`: after the warm-up; none begins once an entry's own rounds took `seconds`. `answer`: seconds for an
    answer."""

    rounds: int = 3
    seconds: float = 8.0
    answer: float = 90.0
    end: float = field(default=float("inf"))
    """The end of the run on the monotonic clock."""


class Child:
    """The process of one rival, started when it is needed."""

    def __init__(self, name: str, sizes: Sizes, limits: Limits, missing: dict[str, str]) -> None:
        self._name, self._sizes, self._limits, self._missing = name, sizes, limits, missing
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.started = 0.0
        """Seconds of its last start."""

    def ask(self, what: str, **details: Any) -> dict[str, Any]:
        """Returns the answer. Raises Failed; the process is then gone, unless the rival itself reported the error."""
        if self._process is None and what != "stop":
            self._start()
        answer = self._asked(what, **details)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def end(self) -> None:
        """End it by request, and then by a kill."""
        if self._process is not None:
            with suppress(Failed):
                self.ask("stop")
        self._kill()

    def _start(self) -> None:
        rival = RIVALS[self._name]
        if reason := self._missing.get(rival.environment):
            raise Failed(f"not installed: {reason}")
        if self._starts >= _STARTS:
            raise Failed(f"given up after {_STARTS} starts")
        self._starts += 1
        self._folder = Path(tempfile.mkdtemp(prefix="w", dir=BENCH_DIR / "tmp"))
        self._shared = tempfile.mkdtemp(prefix="treadle-workloads-", dir=SHARED_MEMORY)
        log = BENCH_DIR / "logs" / f"workloads-{self._name}.log"
        log.parent.mkdir(exist_ok=True)
        sizes = json.dumps(asdict(self._sizes))
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(rival.python), "-m", "workloads.child", rival.module, sizes, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=_environment(self._folder, self._shared),
                cwd=self._folder,
                start_new_session=True,
            )
        answer = self._asked("start")
        if "error" in answer:
            self._kill()
            raise Failed(f"does not start: {answer['error']}")
        self.started = answer["seconds"]

    def _asked(self, what: str, **details: Any) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        end = time.monotonic() + self._limits.answer
        said = b""
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"what": what, **details}).encode() + b"\n")
            process.stdin.flush()
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            data = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                self._kill()
                raise Failed("its process ended" if ready else f"no answer within {self._limits.answer:.0f} s")
            said += data
        answer: dict[str, Any] = json.loads(said)
        return answer

    def _kill(self) -> None:
        """Kill the process and all that it started, anywhere in the tree of processes."""
        if self._process is None:
            return
        self._process.kill()
        for process in marked(self._shared):
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError, AttributeError):
                stream.close()  # type: ignore[union-attr]
        self._process = None
        if self._name == "treadle":
            shutil.rmtree(Home(own(self._folder) / "home").host_root, ignore_errors=True)
        for folder in (self._folder, self._shared):
            shutil.rmtree(folder, ignore_errors=True)


def measure(entries: Iterable[Entry], children: dict[str, Child], limits: Limits) -> list[dict[str, Any]]:
    """A record for each entry of one workload: its seconds, or the reason for their absence."""
    records = [_warmed(entry, children[entry.rival], limits) for entry in entries]
    for _ in range(limits.rounds):
        for record in records:
            if _goes_on(record, limits):
                _round(record, children[record["rival"]])
    for record in records:
        if not record["seconds"] and "warm_up" in record and "error" not in record:
            record["seconds"], record["note"] = [record["warm_up"]], "the first run"
    return records


def _warmed(entry: Entry, child: Child, limits: Limits) -> dict[str, Any]:
    record: dict[str, Any] = {**entry._asdict(), "seconds": [], "spent": []}
    if time.monotonic() > limits.end:
        return {**record, "error": "time was up"}
    try:
        child.ask("prepare", workload=entry.workload)
        record["warm_up"] = child.ask("round", workload=entry.workload, variant=entry.variant)["seconds"]
    except Failed as failed:
        record["error"] = str(failed)
    return record


def _goes_on(record: dict[str, Any], limits: Limits) -> bool:
    if "error" in record or time.monotonic() > limits.end:
        return False
    return bool(sum(record["seconds"]) + record["warm_up"] / 2 < limits.seconds)


def _round(record: dict[str, Any], child: Child) -> None:
    try:
        answer = child.ask("round", workload=record["workload"], variant=record["variant"])
    except Failed as failed:
        record["error"] = str(failed)
    else:
        record["seconds"].append(answer["seconds"])
        record["spent"].append(answer["spent"])


def marked(mark: str) -> list[int]:
    """Processes that have inherited the mark in their environment, since servers leave their starter's tree."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return found


def _environment(folder: Path, shared: str) -> dict[str, str]:
    """One thread for each process, files below `folder`, no telemetry."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))},
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCH), str(PROJECT), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder),
        "BENCH_DIR": str(BENCH_DIR),
        "BENCH_SHARED_MEMORY": shared,
        "DO_NOT_TRACK": "1",
    }
