"""The programs of the thesis "Lithops multiprocessing" (URV, 2021), unmodified: on the standard library, on treadle, on
treadle's workers, and on Lithops.

    python bench/multiprocessing_programs.py [--rounds 3] [--only quicksort,ppo] [--timeout 120]

A time is that of a whole program, from its start to its exit, in seconds: the median of several rounds in turn. All
rivals must print the same. Lithops runs on this machine with a Redis server, in an environment of its own, which is
made once; it is left out where there is no `redis-server`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

from harness.multiprocessing_rivals import PROGRAMS, Rival, in_turn, output, rivals

NAMES = "standard library", "treadle", "treadle, workers", "Lithops 3.8"
RUNS = {
    "monte carlo, 4 million points": ("monte_carlo.py", "4000000", "16"),
    "quicksort of 200,000, in a shared array": ("quicksort.py", "in-place", "200000", "3"),
    "quicksort of 200,000, in copies": ("quicksort.py", "copies", "200000", "3"),
    "quicksort of 200,000, with pipes": ("quicksort.py", "pipes", "200000", "3"),
    "evolution strategies, 8 iterations": ("evolution.py", "8", "64"),
    "PPO, 20 iterations, 2 environments": ("ppo.py", "20", "2"),
    "pandarallel, 200,000 texts": ("sentiment.py", "200000", "2"),
    "grid search, 60 fits": ("grid_search.py", "60"),
}


def seconds(run: tuple[str, ...], timeout: float, rival: Rival) -> tuple[float, str]:
    """Seconds and output of a run."""
    began = time.perf_counter()
    found = output(rival, [str(PROGRAMS / run[0]), *run[1:]], timeout)
    return time.perf_counter() - began, found


def measured(rivals: dict[str, Rival], run: tuple[str, ...], rounds: int, timeout: float) -> list[str]:
    results, failed = in_turn(rivals, rounds, partial(seconds, run, timeout))
    outputs = {printed for found in results.values() for _, printed in found}
    assert len(outputs) == 1, outputs
    return [failed.get(name) or f"{statistics.median(taken for taken, _ in results[name]):.2f}" for name in rivals]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="PROGRAM,...")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS")
    chosen = parser.parse_args()
    with rivals(NAMES) as found:
        print("| program | " + " | ".join(found) + " |\n|---|" + "--:|" * len(found))
        for title, run in RUNS.items():
            if not chosen.only or run[0].removesuffix(".py") in chosen.only.split(","):
                row = measured(found, run, chosen.rounds, chosen.timeout)
                print(f"| {title} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
