"""Whole commands in separate processes, forked from a process with all imports done: a tenth of the time."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Self

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PRELOAD = [
    "temporalio.client",
    *(f"treadle.cli.{name}" for name in ("commands", "logs", "plan", "resume", "run", "show", "steering", "watch")),
    "treadle.cli.view.datasets",
    "treadle.cli.view.watch_output",
    "treadle.client.progress",
    "treadle.client.resumption",
    "treadle.client.run_lookup",
    "treadle.orchestrator.run_requests.driver_client",
    "treadle.orchestrator.temporal.connect",
    "treadle.orchestrator.temporal.temporal_runs",
    "stringprep",
    "treadle.client.documents",
    "treadle.client.attempt_logs",
    "treadle.client.client",
    "treadle.client.submission",
    "treadle.orchestrator.cost.measured",
    "treadle.orchestrator.embedded",
    "treadle.dsl.validation.functions",
    "treadle.dsl.validation.validate",
    "treadle.executors.bundle.unpack",
    "treadle.executors.local.executor",
]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def _command(arguments: tuple[str, ...], folder: str, environ: Mapping[str, str], out: str, err: str) -> None:
    from treadle.cli import main

    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["treadle", *arguments]
    main()


@dataclass
class Terminal:
    """Commands in one folder, with one home. As a context it ends the processes that they leave running."""

    folder: Path
    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        embedded.down(Home(self.home))

    def start(self, *arguments: object, **environ: str) -> Running:
        self.count += 1
        words = tuple(map(str, arguments))
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
        known |= {"TREADLE_HOME": str(self.home), "TREADLE_IDLE": "10m", **self.environ, **environ}
        return begin(words, self.folder, known, *(self.home.parent / f"{self.count}.{name}" for name in ("out", "err")))

    def run(self, *arguments: object, **environ: str) -> Done:
        return self.start(*arguments, **environ).wait()


@dataclass
class Running:
    """A running command."""

    arguments: tuple[str, ...]
    process: multiprocessing.process.BaseProcess
    out: Path
    err: Path

    def wait(self, timeout: float = 100) -> Done:
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"{self.arguments} does not end: {self.err.read_text()}")
        code = self.process.exitcode
        return Done(self.arguments, code, self.out.read_text(), self.err.read_text())


def begin(words: tuple[str, ...], folder: Path, environ: Mapping[str, str], out: Path, err: Path) -> Running:
    """Start `treadle WORDS`, which writes to these files."""
    for file in (out, err):  # also for a command that dies before it writes
        file.touch()
    process = _context().Process(target=_command, args=(words, str(folder), dict(environ), str(out), str(err)))
    process.start()
    return Running(words, process, out, err)


def treadle(
    *words: object, folder: Path, environ: Mapping[str, str], timeout: float = 100
) -> subprocess.CompletedProcess[str]:
    """Run `treadle WORDS` to its end. Returns the result of `subprocess.run`."""
    with tempfile.TemporaryDirectory(prefix="treadle-command-") as place:
        done = begin(tuple(map(str, words)), folder, environ, Path(place, "out"), Path(place, "err")).wait(timeout)
        return subprocess.CompletedProcess(done.arguments, done.code, done.out, done.err)


_NORMAL = (
    (re.compile(r"^\d\d:\d\d:\d\d .*\n", re.M), ""),  # progress: it depends on the machine's speed
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+Z)?"), "TIME"),
    (re.compile(r"-\d{8}-\d{6}-[0-9a-f]{6}"), "-ID"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "N s"),
    (re.compile(r"\.[0-9a-f]{12}\b"), ".NONCE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r'File "[^"]*/(?=[^/"]+")'), 'File "'),
    (re.compile(r", line \d+"), ", line N"),
    (re.compile(r"\w+: Can't (pickle|get) local object .*"), "PICKLE'S WORDS"),  # differs between versions of Python
    (re.compile(r"part-\d{5}"), "part-NUMBER"),  # the first of several failures depends on the machine
)


def session(terminal: Terminal, *commands: Done) -> str:
    """The commands and their output, without parts that differ between machines."""
    return "\n".join(_one(terminal, done) for done in commands)


def _one(terminal: Terminal, done: Done) -> str:
    text = f"$ treadle {' '.join(done.arguments)}\n{done.out}"
    if done.err:
        text += "-- stderr\n" + done.err
    text += f"-- exit code {done.code}\n"
    text = text.replace(str(terminal.folder), "WORK").replace(str(terminal.home), "HOME")
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return text
