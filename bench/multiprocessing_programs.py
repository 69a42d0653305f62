"""The programs of the thesis "Lithops multiprocessing" (URV, 2021), unmodified: on the standard library, on treadle, on
treadle's workers, and on Lithops.

    python bench/multiprocessing_programs.py [--rounds 3] [--only quicksort,ppo] [--timeout 120]

A time is that of a whole program, from its start to its exit, in seconds: the median of several rounds in turn. All
rivals must print the same. Lithops runs on this machine with a Redis server, in an environment of its own, which is
made once; it is left out where there is no `redis-server`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.bench_home import bench_home
from harness.redis_server import redis_server
from harness.settings import BENCH, BENCH_DIR
from workloads import environments

PROGRAMS = BENCH.parent / "examples" / "multiprocessing"
LITHOPS = """import runpy, sys
import lithops.multiprocessing
sys.modules["multiprocessing"] = lithops.multiprocessing
sys.argv[:] = sys.argv[1:]
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""
RUNS = {
    "monte carlo, 4 million points": ("monte_carlo.py", "4000000", "16"),
    "quicksort of 200,000, in a shared array": ("quicksort.py", "in-place", "200000", "3"),
    "quicksort of 200,000, in copies": ("quicksort.py", "copies", "200000", "3"),
    "quicksort of 200,000, with pipes": ("quicksort.py", "pipes", "200000", "3"),
    "evolution strategies, 8 iterations": ("evolution.py", "8", "64"),
    "PPO, 20 iterations, 2 environments": ("ppo.py", "20", "2"),
    "grid search, 60 fits": ("grid_search.py", "60"),
}


class Rival(NamedTuple):
    command: list[str]
    variables: dict[str, str]


@contextlib.contextmanager
def rivals() -> Iterator[dict[str, Rival]]:
    ours = [sys.executable, "-m", "treadle.multiprocessing"]
    plain = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with bench_home("[bench]\nslots = 9\n") as home, contextlib.ExitStack() as stack:
        at_workers = {
            **plain,
            "TREADLE_HOME": str(home.path),
            "TREADLE_PROFILE": "bench",
            "TREADLE_PEERS": "tls://127.0.0.1:0",
        }
        found = {
            "standard library": Rival([sys.executable], plain),
            "treadle": Rival(ours, plain),
            "treadle, workers": Rival([*ours, "--executor", "local"], at_workers),
        }
        if shutil.which("redis-server"):
            found["Lithops 3.8"] = stack.enter_context(lithops(plain))
        yield found


@contextlib.contextmanager
def lithops(plain: dict[str, str]) -> Iterator[Rival]:
    """Lithops as its documentation sets it up for one machine, with its own Redis server."""
    if reason := environments.lithops():
        raise SystemExit(f"there is no environment for Lithops: {reason}")
    python = BENCH_DIR / "lithops" / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="lithops-") as name, redis_server() as port:
        folder = Path(name)
        config = {
            "lithops": {"backend": "localhost", "storage": "localhost", "log_level": "CRITICAL", "telemetry": False},
            "localhost": {"max_workers": 9, "runtime": str(python)},
            "redis": {"host": "127.0.0.1", "port": int(port), "password": None},
        }
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "program.py").write_text(LITHOPS.format(folder=str(PROGRAMS)))
        variables = {**plain, "LITHOPS_CONFIG_FILE": str(folder / "config.json"), "PYTHONPATH": str(PROGRAMS)}
        yield Rival([str(python), str(folder / "program.py")], variables)


def seconds(rival: Rival, run: tuple[str, ...], timeout: float) -> tuple[float, str]:
    """Seconds and output of a run; raises RuntimeError when it fails or takes too long."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*rival.command, str(PROGRAMS / run[0]), *run[1:]],
        env=rival.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        raise RuntimeError(f"over {timeout:.0f} s") from None
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or ["no error"])[-1][:60])
    return time.perf_counter() - began, output


def measured(rivals: dict[str, Rival], run: tuple[str, ...], rounds: int, timeout: float) -> dict[str, str]:
    times: dict[str, list[float]] = {name: [] for name in rivals}
    failed: dict[str, str] = {}
    outputs = set()
    for _ in range(rounds):
        for name, rival in rivals.items():
            if name not in failed:
                try:
                    time_taken, output = seconds(rival, run, timeout)
                except RuntimeError as error:
                    failed[name] = str(error)
                else:
                    times[name].append(time_taken)
                    outputs.add(output.strip())  # Lithops prints an empty line
    assert len(outputs) == 1, outputs
    return {name: failed.get(name) or f"{statistics.median(times[name]):.2f}" for name in rivals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="PROGRAM,...")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS")
    chosen = parser.parse_args()
    with rivals() as found:
        print("| program | " + " | ".join(found) + " |\n|---|" + "--:|" * len(found))
        for title, run in RUNS.items():
            if not chosen.only or run[0].removesuffix(".py") in chosen.only.split(","):
                row = measured(found, run, chosen.rounds, chosen.timeout)
                print(f"| {title} | " + " | ".join(row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
