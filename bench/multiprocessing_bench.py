"""treadle.multiprocessing beside the standard library: microseconds for each operation, the median of several rounds.

    python bench/multiprocessing_bench.py [--rounds 5] [--scale 1.0]

Run it on a quiet machine: each operation is a few switches between processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import treadle.multiprocessing


def echo(end: Any) -> None:
    for item in iter(end.recv, None):
        end.send(item)


def pass_on(source: Any, target: Any) -> None:
    for item in iter(source.get, None):
        target.put(item)


def nothing(_: int) -> None: ...


def per_call(count: int, work: Callable[[], object]) -> float:
    """Microseconds of each of `count` calls."""
    begun = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begun) / count * 1e6


def pipe(module: Any, count: int) -> float:
    mine, other = module.Pipe()
    process = module.Process(target=echo, args=(other,))
    process.start()

    def both_ways() -> None:
        mine.send(b"x")
        mine.recv()

    both_ways()
    found = per_call(count, both_ways)
    mine.send(None)
    process.join()
    return found


def queue(module: Any, count: int) -> float:
    there, back = module.Queue(), module.Queue()
    process = module.Process(target=pass_on, args=(there, back))
    process.start()

    def both_ways() -> None:
        there.put(b"x")
        back.get()

    both_ways()
    found = per_call(count, both_ways)
    there.put(None)
    process.join()
    return found


def pool(module: Any, count: int) -> float:
    with module.Pool(2) as workers:
        workers.map(nothing, range(64))
        return per_call(count, lambda: workers.map(nothing, range(64)))


def start(module: Any, count: int) -> float:
    def run() -> None:
        process = module.Process(target=nothing, args=(1,))
        process.start()
        process.join()

    run()
    return per_call(count, run)


def lock(module: Any, count: int) -> float:
    found = module.Lock()

    def both() -> None:
        found.acquire()
        found.release()

    both()
    return per_call(count, both)


BENCHES = [
    ("Pipe, round trip", pipe, 3000),
    ("Queue, round trip", queue, 1000),
    ("Pool(2).map(64)", pool, 50),
    ("Lock, acquire and release", lock, 2000),
    ("Process, start to end", start, 20),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of calls")
    options = parser.parse_args()
    modules = [("fork", multiprocessing.get_context("fork")), ("forkserver", multiprocessing.get_context("forkserver"))]
    modules.append(("treadle", treadle.multiprocessing))
    print(f"{'us, median (lowest)':28}" + "".join(f"{name:>20}" for name, _ in modules))
    for title, bench, count in BENCHES:
        line = f"{title:28}"
        for _, module in modules:
            found = [bench(module, max(1, int(count * options.scale))) for _ in range(options.rounds)]
            line += f"{f'{statistics.median(found):.1f} ({min(found):.1f})':>20}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
