"""The micro-benchmarks of the thesis "Lithops multiprocessing" (URV, 2021): operations on the standard library, on
treadle, on treadle's workers, on emulated functions, and on Lithops.

    python bench/multiprocessing_bench.py [--only pipe,queue] [--rivals "treadle;Lithops 3.8"]
                                          [--rounds 5] [--seconds 1] [--timeout 120]

Each measurement is a process of its own, which runs `multiprocessing_operations.py`. The rounds go from rival to rival
and around again. A figure is the median of the rounds, and the lowest (of MB/s: the highest). A rival that fails or
takes too long is not run again. Run it on a quiet machine: each operation is a few switches between processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from functools import partial

from harness.multiprocessing_rivals import RIVALS, Rival, in_turn, output, rivals
from harness.settings import BENCH
from multiprocessing_operations import OPERATIONS

Figures = dict[str, float]


def figures(operation: str, seconds: float, timeout: float, rival: Rival) -> Figures:
    printed = output(rival, [str(BENCH / "multiprocessing_operations.py"), operation, str(seconds)], timeout)
    found: Figures = json.loads(printed.splitlines()[-1])
    return found


def number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def cell(title: str, found: Sequence[Figures]) -> str:
    values = [one[title] for one in found]
    best = max if title.endswith("MB/s") else min
    return f"{number(statistics.median(values))} ({number(best(values))})"


def rows(operation: str, results: dict[str, list[Figures]], failed: dict[str, str]) -> list[list[str]]:
    titles = next((list(found[0]) for found in results.values() if found), [operation])
    return [[title, *(failed.get(name) or cell(title, found) for name, found in results.items())] for title in titles]


def chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(OPERATIONS), metavar="OPERATION,...")
    parser.add_argument("--rivals", default=";".join(RIVALS), metavar="RIVAL;...")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each figure")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="of each process")
    return parser.parse_args()


def main() -> None:
    options = chosen()
    with rivals(options.rivals.split(";")) as found:
        print("| median (best) | " + " | ".join(found) + " |\n|---|" + "--:|" * len(found))
        for operation in options.only.split(","):
            work = partial(figures, operation, options.seconds, options.timeout)
            for row in rows(operation, *in_turn(found, options.rounds, work)):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
