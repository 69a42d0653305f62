"""The rivals of treadle.multiprocessing: commands that run a program of `multiprocessing` unmodified."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from workloads import environments

from harness.bench_home import bench_home
from harness.redis_server import redis_server
from harness.settings import BENCH, BENCH_DIR

sys.path.insert(0, str(BENCH.parent / "tests"))

from emulators.lambda_place import lambda_place

T = TypeVar("T")
PROGRAMS = BENCH.parent / "examples" / "multiprocessing"
OURS = [sys.executable, "-m", "treadle.multiprocessing"]
SLOTS = 9
LITHOPS = """import os, runpy, sys
import lithops.multiprocessing
sys.modules["multiprocessing"] = lithops.multiprocessing
sys.argv[:] = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Rival(NamedTuple):
    command: list[str]
    variables: dict[str, str]


def _plain() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def standard_library() -> Iterator[Rival]:
    yield Rival([sys.executable], _plain())


@contextlib.contextmanager
def treadle() -> Iterator[Rival]:
    yield Rival(OURS, _plain())


@contextlib.contextmanager
def at_workers() -> Iterator[Rival]:
    with bench_home(f"[bench]\nslots = {SLOTS}\n") as home:
        yield Rival([*OURS, "--executor", "local"], {**_plain(), **_cluster(home.path)})


@contextlib.contextmanager
def on_functions() -> Iterator[Rival]:
    """Functions of the emulated AWS Lambda of the tests, which share the cores of this machine."""
    with (
        tempfile.TemporaryDirectory() as folder,
        lambda_place(Path(folder), concurrency=SLOTS) as place,
        bench_home("") as home,
    ):
        place.deploy(str(home.key), timeout=300)
        home.profiles.write_text(place.profile("bench", concurrency=SLOTS).replace("60s", "300s"))
        variables = {**_plain(), **_cluster(home.path), **place.emulator.credentials}
        yield Rival([*OURS, "--executor", "lambda"], variables)


def _cluster(home: Path) -> dict[str, str]:
    return {"TREADLE_HOME": str(home), "TREADLE_PROFILE": "bench", "TREADLE_PEERS": "tls://127.0.0.1:0"}


@contextlib.contextmanager
def lithops() -> Iterator[Rival]:
    """Lithops as its documentation sets it up for one machine, with its own Redis server."""
    if reason := environments.lithops():
        raise SystemExit(f"there is no environment for Lithops: {reason}")
    python = BENCH_DIR / "lithops" / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="lithops-") as name, redis_server() as port:
        folder = Path(name)
        config = {
            "lithops": {"backend": "localhost", "storage": "localhost", "log_level": "CRITICAL", "telemetry": False},
            "localhost": {"max_workers": SLOTS, "runtime": str(python)},
            "redis": {"host": "127.0.0.1", "port": int(port), "password": None},
        }
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "program.py").write_text(LITHOPS)
        variables = {**_plain(), "LITHOPS_CONFIG_FILE": str(folder / "config.json"), "PYTHONPATH": str(PROGRAMS)}
        yield Rival([str(python), str(folder / "program.py")], variables)


RIVALS = {
    "standard library": standard_library,
    "treadle": treadle,
    "treadle, workers": at_workers,
    "treadle, emulated functions": on_functions,
    "Lithops 3.8": lithops,
}


@contextlib.contextmanager
def rivals(names: Sequence[str]) -> Iterator[dict[str, Rival]]:
    """The rivals of these names, until the end of the block. Lithops is left out where there is no `redis-server`."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(RIVALS[name]())
            for name in names
            if RIVALS[name] is not lithops or shutil.which("redis-server")
        }


def output(rival: Rival, program: Sequence[str], timeout: float) -> str:
    """Run a program, and return its output. Raises RuntimeError when the program fails or takes too long."""
    process = subprocess.Popen(
        [*rival.command, *program],
        env=rival.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        found, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        raise RuntimeError(f"over {timeout:.0f} s") from None
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or ["no error"])[-1][:60])
    return found.strip()  # Lithops prints an empty line


def in_turn(
    rivals: dict[str, Rival], rounds: int, work: Callable[[Rival], T]
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """Let each rival do the work once in each round; returns the results, and the error of each failed rival."""
    results: dict[str, list[T]] = {name: [] for name in rivals}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name, rival in rivals.items():
            if name not in failed:
                try:
                    results[name].append(work(rival))
                except RuntimeError as error:
                    failed[name] = str(error)
    return results, failed
