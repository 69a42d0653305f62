"""Calls of a session beside Ray and `concurrent.futures`, in one run. Prints a table of medians.

    python bench/environments.py                      # the environment of Ray, once
    python bench/sessions.py [--rounds 5] [--only broadcast,reduce] [--calls 10000]

Each rival has two processes and is one child, which is started and warmed up once. The rivals take turns in every
round, so that other load on the machine affects all alike. Answers are checked outside of the measured time.

| measurement | from .. to |
|---|---|
| `calls` | the first submit of `--calls` calls that do nothing, one by one .. the last result |
| `round trip` | submit of one such call .. its result; the median of 100 |
| `broadcast` | a new array of 100 MB at the client .. the 8 sums of 8 calls |
| `reduce` | submit of 8 calls that make 100 MB each .. the checksum of their element-wise sum |

A session writes every call and result to disk before it counts; the others lose all with their process. The pool has no
shared memory, so its large arrays travel through pipes: only calls and round trips are measured with it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # before numpy
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_DEDUP_LOGS="0")

import numpy as np
from harness.settings import RIVALS_PYTHON

MEASUREMENTS = ("calls", "round trip", "broadcast", "reduce")
TASKS, ELEMENTS, TRIPS = 8, 12_500_000, 100
Array = Any


def same(number: int) -> int:
    return number


def total(array: Array) -> float:
    return float(array.sum())


def make(seat: int) -> Array:
    return np.arange(seat, seat + ELEMENTS, dtype=np.int64)


def add(a: Array, b: Array) -> Array:
    return a + b


CHECKSUM = float(sum(make(seat).sum() for seat in range(TASKS)))


class Rival:
    """One system. A measurement returns seconds, or raises AssertionError for a wrong answer."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._array = np.ones(ELEMENTS)

    def close(self) -> None:
        """End its processes and remove its files."""

    def submit(self, number: int) -> Callable[[], int]:
        """Call `same`. Returns what waits for the result."""
        raise NotImplementedError

    def sums(self, array: Array) -> list[float]:
        raise NotImplementedError

    def reduced(self) -> float:
        raise NotImplementedError

    def measure(self, name: str) -> float:
        methods = self._all_calls, self._round_trip, self._broadcast, self._reduce
        return dict(zip(MEASUREMENTS, methods, strict=True))[name]()

    def _all_calls(self) -> float:
        began = time.perf_counter()
        waits = [self.submit(number) for number in range(self._calls)]
        found = [wait() for wait in waits]
        took = time.perf_counter() - began
        assert found == list(range(self._calls))
        return took

    def _round_trip(self) -> float:
        took = []
        for number in range(TRIPS):
            began = time.perf_counter()
            assert self.submit(number)() == number
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    def _broadcast(self) -> float:
        self._array += 1
        began = time.perf_counter()
        found = self.sums(self._array)
        took = time.perf_counter() - began
        assert found == [self._array.sum()] * TASKS
        return took

    def _reduce(self) -> float:
        began = time.perf_counter()
        found = self.reduced()
        took = time.perf_counter() - began
        assert found == CHECKSUM
        return took


class Treadle(Rival):
    """A session on the embedded default, with two slots."""

    def __init__(self, calls: int) -> None:
        super().__init__(calls)
        from treadle.client import session

        self._home = Path(tempfile.mkdtemp(prefix="treadle-bench-"))
        (self._home / "profiles.toml").write_text("[default]\nslots = 2\n")
        self._session = session("bench", home=self._home, show=False)

    def close(self) -> None:
        from treadle.orchestrator import embedded
        from treadle.orchestrator.environment.home import Home

        self._session.end()
        embedded.down(Home(self._home))
        shutil.rmtree(Home(self._home).host_root, ignore_errors=True)
        shutil.rmtree(self._home)

    def submit(self, number: int) -> Callable[[], int]:
        return self._session.submit(same, number).result

    def sums(self, array: Array) -> list[float]:
        return list(self._session.map(total, [array] * TASKS).results())

    def reduced(self) -> float:
        found: float = self._session.submit(total, self._session.map_reduce(make, range(TASKS), add)).result()
        return found


class Ray(Rival):
    def __init__(self, calls: int) -> None:
        super().__init__(calls)
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        self._ray = ray
        self._same, self._total, self._make, self._add = map(ray.remote, (same, total, make, add))

    def close(self) -> None:
        self._ray.shutdown()

    def submit(self, number: int) -> Callable[[], int]:
        reference = self._same.remote(number)
        return lambda: self._ray.get(reference)

    def sums(self, array: Array) -> list[float]:
        shared = self._ray.put(array)
        return self._ray.get([self._total.remote(shared) for _ in range(TASKS)])

    def reduced(self) -> float:
        left = [self._make.remote(seat) for seat in range(TASKS)]
        while len(left) > 1:
            left = [self._add.remote(a, b) for a, b in zip(left[::2], left[1::2], strict=True)]
        return self._ray.get(self._total.remote(left[0]))


class Pool(Rival):
    """`concurrent.futures.ProcessPoolExecutor`."""

    def __init__(self, calls: int) -> None:
        super().__init__(calls)
        from concurrent.futures import ProcessPoolExecutor

        self._pool = ProcessPoolExecutor(2)

    def close(self) -> None:
        self._pool.shutdown()

    def submit(self, number: int) -> Callable[[], int]:
        return self._pool.submit(same, number).result


RIVALS: dict[str, tuple[type[Rival], str, tuple[str, ...]]] = {
    "treadle": (Treadle, sys.executable, MEASUREMENTS),
    "Ray": (Ray, str(RIVALS_PYTHON), MEASUREMENTS),
    "pool": (Pool, sys.executable, MEASUREMENTS[:2]),
}


def serve(name: str, calls: int) -> None:
    """The child: makes each measurement that a line of its input names."""
    rival = RIVALS[name][0](calls)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a rival prints
    for line in sys.stdin:
        answers.write(f"{rival.measure(line.strip())}\n")
    answers.close()
    rival.close()


class Child:
    def __init__(self, name: str, calls: int) -> None:
        _, python, self.measurements = RIVALS[name]
        command = [python, __file__, "--serve", name, "--calls", str(calls)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, name: str) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(MEASUREMENTS))
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--serve", choices=RIVALS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.calls)
        return
    children = {name: Child(name, given.calls) for name in given.rivals.split(",")}
    print(f"| measurement | {' | '.join(children)} | load |\n|---|{'--:|' * (len(children) + 1)}")
    for name in given.only.split(","):
        times: dict[str, list[float]] = {rival: [] for rival in children}
        for _ in range(given.rounds + 1):
            for rival, child in children.items():
                if name in child.measurements:
                    times[rival].append(child.measure(name))
        cells = [f"{statistics.median(one[1:]) * 1000:,.1f} ms" if one else "" for one in times.values()]
        print(f"| {name} | {' | '.join(cells)} | {os.getloadavg()[0]:.1f} |", flush=True)
    for child in children.values():
        child.end()


if __name__ == "__main__":
    main()
