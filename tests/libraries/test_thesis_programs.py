"""The programs of examples/multiprocessing print the same on treadle as on the standard library, and do not hang when
their processes are killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from emulators.lambda_place import lambda_place
from libraries.programs import cluster

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PROGRAMS = Path(__file__).parent.parent.parent / "examples" / "multiprocessing"
RUNS = [
    ("monte_carlo.py", "20000", "8"),
    ("quicksort.py", "in-place", "3000", "2"),
    ("quicksort.py", "copies", "3000", "2"),
    ("quicksort.py", "pipes", "3000", "2"),
    ("evolution.py", "2", "8"),
    ("ppo.py", "2", "2", "32"),
    ("grid_search.py", "10"),
]
NAMES = [run[0] if run[1].isdigit() else " ".join(run[:2]) for run in RUNS]
LONG = [
    ("monte_carlo.py", "6000000", "64"),
    ("quicksort.py", "in-place", "200000", "3"),
    ("quicksort.py", "copies", "200000", "3"),
    ("quicksort.py", "pipes", "200000", "3"),
    ("evolution.py", "12", "64"),
    ("ppo.py", "60", "2"),
    ("grid_search.py", "200"),
]
"""About five seconds each."""
PLAIN = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def command(run: tuple[str, ...], *options: str) -> list[str]:
    return [sys.executable, *options, str(PROGRAMS / run[0]), *run[1:]]


def output(run: tuple[str, ...], *options: str, **environ: str) -> str:
    """The output of a program, which must succeed and print no error."""
    done = subprocess.run(
        command(run, *options), capture_output=True, text=True, check=False, env={**PLAIN, **environ}, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@cache
def expected(run: tuple[str, ...]) -> str:
    """Its output on the standard library."""
    return output(run)


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_program_prints_the_same_as_on_the_standard_library(run: tuple[str, ...]) -> None:
    assert output(run, "-m", "treadle.multiprocessing") == expected(run)


def children_of(parent: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{parent}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:  # it has ended
        return []


def children(parent: int) -> Iterator[int]:
    """All descendants of a process."""
    for child in children_of(parent):
        yield child
        yield from children(child)


def processes(above: int) -> list[int]:
    """The processes of the program, below its fork servers, and the workers that these are at."""
    servers = [process for process in children(above) if is_fork_server(process)]
    workers = [process for process in children(above) if not set(servers).isdisjoint(children_of(process))]
    return [process for server in servers for process in children(server)] + workers


def is_fork_server(process: int) -> bool:
    try:
        return b"multiprocessing.forkserver" in Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


class Place(NamedTuple):
    """Where the processes of a program run."""

    options: tuple[str, ...]
    environ: Mapping[str, str]
    above: Callable[[int], int]
    """By the program's id: the process below which the others are."""


@contextlib.contextmanager
def here(home: Home) -> Iterator[Place]:
    yield Place((), {}, int)


@contextlib.contextmanager
def at_workers(home: Home) -> Iterator[Place]:
    home.profiles.write_text("[many]\nslots = 9\n")

    def driver(_: int) -> int:
        found = embedded.running_driver(home)
        return found.pid if found else os.getpid()

    yield Place(("--executor", "local"), cluster(home, "many"), driver)


@contextlib.contextmanager
def on_functions(home: Home) -> Iterator[Place]:
    """Functions of an emulated Lambda, whose sandboxes are processes of this one."""
    with TemporaryDirectory() as folder, lambda_place(Path(folder), concurrency=9) as place:
        place.deploy(str(home.key), timeout=300)
        home.profiles.write_text(place.profile("many", concurrency=9).replace("60s", "300s"))
        environ = {**cluster(home, "many"), **place.emulator.credentials}
        yield Place(("--executor", "lambda"), environ, lambda _: os.getpid())


@pytest.fixture(scope="module", params=[here, at_workers, on_functions], ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = Home(tmp_path_factory.mktemp("home"))
    with request.param(home) as found:
        try:
            yield found
        finally:
            embedded.down(home)


@contextlib.contextmanager
def started(run: list[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program, whose processes are all killed at the end."""
    with subprocess.Popen(
        run,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**PLAIN, **environ},
        start_new_session=True,
    ) as program:
        try:
            yield program
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("run", LONG, ids=NAMES)
def test_killed_process_is_named_or_does_not_matter(place: Place, run: tuple[str, ...], seed: int) -> None:
    generator = random.Random(seed)
    ours = command(run, "-m", "treadle.multiprocessing", *place.options)
    with started(ours, place.environ) as program:
        while not (found := processes(place.above(program.pid))):
            time.sleep(0.02)
        time.sleep(generator.uniform(0, 2))
        found = processes(place.above(program.pid)) or found
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(generator.choice(found), signal.SIGKILL)
        killed = time.monotonic()
        output, errors = program.communicate(timeout=30)
        seconds = time.monotonic() - killed
    if program.returncode == 0:
        assert output == expected(run)
    else:
        assert "Process-" in errors or "Worker-" in errors, errors
        assert seconds < 5, errors
