"""Measures the hot paths and compares them with their budgets."""

from __future__ import annotations

import asyncio
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from budgets.commands import COMMANDS, modules
from budgets.counting import Calls, Counting, heap
from budgets.paths import PATHS, without_chance

FILE = Path(__file__).with_name("budgets.toml")
ABOVE, BELOW = 0.015, 0.05
"""Shares of a budget: a path may take this share more, or less."""
Budgets = dict[str, dict[str, int]]
"""Path -> unit -> budget."""


class Found(NamedTuple):
    """The amount of one unit that a path takes, and the calls that it consists of, if they are known."""

    amount: int
    where: Calls


def budgets() -> Budgets:
    return tomllib.loads(FILE.read_text("utf-8"))


def measured(name: str) -> dict[str, Found]:
    """Measure a path; the heap only if it has a budget. Raises KeyError for an unknown path."""
    with tempfile.TemporaryDirectory() as root, without_chance():
        folders = [Path(tempfile.mkdtemp(dir=root)) for _ in range(3)]
        if name in COMMANDS:
            found = asyncio.run(modules(name, folders[0]))
            return {"modules": Found(len(found), Counter((one.partition(".")[0], "") for one in found))}
        prepare = PATHS[name]
        prepare(folders[0])()  # imports and caches are not counted
        work = prepare(folders[1])
        with Counting() as counting:
            work()
        most = heap(prepare(folders[2])) if "heap_mib" in budgets()[name] else 0
    calls, system = counting.calls(), counting.system()
    where = {"calls": Found(calls.total(), calls), "system_calls": Found(system.total(), system)}
    return {**where, "heap_mib": Found(most, Calls())}


def problem(name: str, unit: str, budget: int, amount: int) -> str:
    """The message of a failure; empty: the path keeps its budget."""
    takes = f"{name} takes {amount:,} {unit}, its budget is {budget:,}"
    if amount - budget > ABOVE * budget:
        find = f"Compare `make budgets TOP={name}` with its output before the change."
        return f"{takes}. {find} To accept the change: `make budgets RENEW=1`, with the reason in the commit message."
    if budget - amount > BELOW * budget:
        return f"{takes}, which is too generous. Lower it: `make budgets RENEW=1`."
    return ""


def renewed(text: str, found: Mapping[str, Mapping[str, int]]) -> str:
    """The file with the measured amounts as budgets. Comments stay."""

    def line(entry: re.Match[str]) -> str:
        path, unit, _ = entry.groups()
        return f"{path}.{unit} = {found[path][unit]:_}"

    return re.sub(r"^(\w+)\.(\w+) = ([\d_]+)", line, text, flags=re.MULTILINE)
