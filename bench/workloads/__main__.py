"""Measures all rivals on all workloads in one run, and writes bench/WORKLOADS.md.

python -m workloads [--minutes 11] [--small] [--rivals treadle,floor,Ray] [--workloads words,sort]    (in bench)
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import time
from pathlib import Path
from typing import Any

from harness import machine
from harness.settings import BENCH_DIR

from workloads import data, environments, report
from workloads.measuring import Child, Limits, measure
from workloads.settings import ENTRIES, FULL, RESULTS, RIVALS, SMALL, TITLES, Entry


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=11, help="begin no further round then")
    parser.add_argument("--rounds", type=int, default=5, help="after the one that warms up, at most")
    parser.add_argument(
        "--seconds", type=float, default=8, help="of one rival on one workload, measured rounds together"
    )
    parser.add_argument("--answer", type=float, default=75, help="seconds that one round may take")
    parser.add_argument("--small", action="store_true", help="tiny sizes: only whether everything runs")
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--workloads", default=",".join(TITLES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, help="the report; bench/WORKLOADS.md, with --small only the terminal")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    limits = Limits(chosen.rounds, chosen.seconds, chosen.answer, time.monotonic() + 60 * chosen.minutes)
    sizes = SMALL if chosen.small else FULL
    (BENCH_DIR / "tmp").mkdir(parents=True, exist_ok=True)
    missing = environments.make()
    data.make(sizes)
    rivals = chosen.rivals.split(",")
    entries = [one for one in ENTRIES if one.rival in rivals and one.workload in chosen.workloads.split(",")]
    about = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "small": chosen.small}
    lines: list[dict[str, Any]] = [about | machine.facts() | {"packages": list(_pins(missing))}]
    children = {name: Child(name, sizes, limits, missing) for name in rivals}
    try:
        for workload in TITLES:
            lines += _measured([one for one in entries if one.workload == workload], children, limits)
            chosen.results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    finally:
        for child in children.values():
            child.end()
        shutil.rmtree(BENCH_DIR / "tmp", ignore_errors=True)
    report.write(chosen.results, chosen.output or (None if chosen.small else report.OUTPUT))


def _measured(entries: list[Entry], children: dict[str, Child], limits: Limits) -> list[dict[str, Any]]:
    records = measure(entries, children, limits)
    for record in records:
        print(report.line(record), flush=True)
    return records


def _pins(missing: dict[str, str]) -> list[str]:
    return [pin for name, pins in environments.PINS.items() if name not in missing for pin in pins]


if __name__ == "__main__":
    main()
