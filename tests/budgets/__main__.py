"""Prints the hot paths beside their budgets: `make budgets`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from budgets import measure

SHOWN = 50


def amounts(name: str, units: Iterable[str]) -> dict[str, int]:
    found = measure.measured(name)
    return {unit: found[unit].amount for unit in units}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make budgets", description=__doc__)
    parser.add_argument("--top", metavar="PATH", help="Print the most frequent calls of a path, with their callers.")
    parser.add_argument("--renew", action="store_true", help="Write the measured amounts as the new budgets.")
    parser.add_argument("--json", action="store_true", help="Print the measured amounts as JSON.")
    options, known, say = parser.parse_args(), measure.budgets(), sys.stdout.write
    if options.top:
        for unit in known[options.top]:
            amount, where = measure.measured(options.top)[unit]
            say(f"{amount:,} {unit}\n")
            for (called, caller), count in sorted(where.items(), key=lambda one: (-one[1], one[0]))[:SHOWN]:
                say(f"{count:>9,}  {called}  {caller and f'<- {caller}'}\n")
        return
    found = {name: amounts(name, units) for name, units in known.items()}
    if options.json:
        say(json.dumps(found))
        return
    for name, units in known.items():
        for unit, budget in units.items():
            amount = found[name][unit]
            change = f"{amount / budget - 1:+.1%}" if budget else ""
            wrong = "  !" if measure.problem(name, unit, budget, amount) else ""
            say(f"{name:20} {unit:13} {budget:>9,} {amount:>9,} {change:>7}{wrong}\n")
    if options.renew:
        measure.FILE.write_text(measure.renewed(measure.FILE.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
