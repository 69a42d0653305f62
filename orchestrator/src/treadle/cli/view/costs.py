"""Costs as text and data: the estimate of `plan`, and the measured cost in `show`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from treadle.primitives.errors import UsageError

from ..common import formatting

LOOK_SECONDS = 10.0
"""Seconds between two computations of a watched run's cost. Each lists the ledgers, which costs a request."""

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.executors.interface import Capabilities
    from treadle.orchestrator.cost.bill import Bill, BillLine
    from treadle.orchestrator.cost.estimate import Assumed
    from treadle.orchestrator.cost.measured import Spending
    from treadle.orchestrator.cost.usage import Usage
    from treadle.orchestrator.plan.plan import Plan
    from treadle.orchestrator.planner import RunLocation
    from treadle.orchestrator.run_requests.run_views import RunView
    from treadle.orchestrator.run_store.run_files import RunFiles

    from ..common.environment import Environment


def read_assumed(pairs: list[str]) -> Assumed:
    """Parse the assumptions: `bytes=1TB` of each file source, `slots=10000` of each executor, `rate=50MiB` per second
    of each task, `start=500ms` of each attempt, `STAGE=2GB` produced by a stage in total."""
    from treadle.dsl.units import parse_duration
    from treadle.orchestrator.cost.estimate import Assumed

    readers: dict[str, Callable[[str], Any]] = {"bytes": _size, "slots": int, "rate": _size, "start": parse_duration}
    found: dict[str, Any] = {}
    made: dict[str, int] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            value = readers.get(name, _size)(text)
        except ValueError as error:
            raise UsageError(f"--assume {pair}: {error}", "Write such as bytes=1TB, slots=10000, rate=50MiB.") from None
        if value <= 0:
            raise UsageError(f"--assume {pair}: more than nothing is needed", "Leave it away, or give more.")
        (found if name in readers else made)[name] = value
    return Assumed(**found, made=made)


def _size(text: str) -> int:
    """A size of the workflow language, or terabytes."""
    from treadle.dsl.units import parse_size

    return 1000 * parse_size(f"{text[:-2]}GB") if text.endswith("TB") else parse_size(text)


def supposing(site: RunLocation, assumed: Assumed) -> RunLocation:
    """The site with its known values replaced by the assumed ones."""
    executors = Resized(site.executors, assumed.slots) if assumed.slots else site.executors
    return replace(site, executors=executors, assumed_bytes=assumed.bytes)


class Resized(Mapping[str, "Capabilities"]):
    """Executors with another number of slots, including executors that can be looked up but are not listed
    (`NAME/members`)."""

    def __init__(self, known: Mapping[str, Capabilities], slots: int) -> None:
        self._known, self._slots = known, slots

    def __getitem__(self, name: str) -> Capabilities:
        return replace(self._known[name], slots=self._slots)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def estimated(env: Environment, plan: Plan, assumed: Assumed) -> tuple[Bill, float]:
    """The bill of a plan, and its minimum duration in seconds."""
    from treadle.orchestrator.cost.bill import bill
    from treadle.orchestrator.cost.estimate import elapsed, estimate
    from treadle.orchestrator.cost.prices import load_prices

    lines = estimate(plan, assumed)
    return bill(lines, load_prices(env.home), env.settings.store), elapsed(plan, lines)


class Running:
    """The running total of a watched run, recomputed at intervals from the new ledger records."""

    def __init__(self, env: Environment, run: str) -> None:
        self._env, self._run = env, run
        self._spending: dict[str, Spending] = {}
        """Prefix of the stages of a child run -> its spending."""
        self._looked = -LOOK_SECONDS
        self._text = ""

    def text(self, plan: Plan | None, *, last: bool = False) -> str:
        """For example `0.0012 USD`; empty if no used executor has a price. Blocking."""
        if plan is None or not (last or time.monotonic() - self._looked >= LOOK_SECONDS):
            return self._text
        self._looked = time.monotonic()
        from treadle.orchestrator.cost.prices import load_prices
        from treadle.orchestrator.run_store.child_runs import family

        prices, runs = load_prices(self._env.home), list(family(self._env.files(self._run), self._env.files))
        if not any(can.name in prices.executors for _, _, one in runs for can in one.executors.values()):
            return ""
        from treadle.orchestrator.cost.bill import bill  # late: few runs have a price
        from treadle.orchestrator.cost.measured import Spending

        for below, files, one in runs:
            self._spending.setdefault(below, Spending(files, one, self._env.plan_site().executors))
        lines = [line for one in self._spending.values() for line in one.lines()]
        made = bill(lines, prices, self._env.settings.store)
        self._text = money(made.cost, made.currency)
        return self._text


async def spent_by(env: Environment, runs: Runs, run: str) -> Bill:
    """The cost of a run so far, including all its child runs, whose lines are named `load/read`."""
    from treadle.orchestrator.cost.bill import bill
    from treadle.orchestrator.cost.prices import load_prices
    from treadle.orchestrator.run_requests.requests import NoSuchRun
    from treadle.orchestrator.run_store.child_runs import family

    lines: list[BillLine] = []
    unknown: list[str] = []
    for below, files, plan in await asyncio.to_thread(lambda: list(family(env.files(run), env.files))):
        try:
            view = await runs.view(files.run)
        except NoSuchRun:  # Temporal has forgotten the run, but its ledgers exist
            view = None
        found, missing = await asyncio.to_thread(_lines_of, env, below, files, plan, view)
        lines, unknown = [*lines, *found], [*unknown, *missing]
    return bill(lines, load_prices(env.home), env.settings.store, unknown)


def _lines_of(
    env: Environment, below: str, files: RunFiles, plan: Plan, view: RunView | None
) -> tuple[list[BillLine], list[str]]:
    """(lines of one run, items that are not included)"""
    from datetime import UTC, datetime

    from treadle.client.attempt_logs import LogFollower
    from treadle.orchestrator.cost.measured import Spending

    seconds = ((view.closed or datetime.now(UTC)) - view.started).total_seconds() if view else 0.0
    spending = Spending(files, plan, env.plan_site().executors)
    found = spending.lines(LogFollower(files).new(), view.history_events if view else 0, seconds)
    return [replace(line, node=below + line.node) for line in found], spending.unknown


def money(cost: float, currency: str) -> str:
    """Two significant digits: `12.30 USD`, `0.0012 USD`."""
    if cost >= 1:
        return f"{cost:,.2f} {currency}"
    return f"{cost:.2g} {currency}" if cost else f"0 {currency}"


def estimate_lines(made: Bill, seconds: float, assumed: Assumed) -> list[str]:
    """The estimate as a table, with its assumptions."""
    rows = [["segment", "executor", "memory", "tasks", "waves", "time", *_USAGE, "reads", "cost"]]
    for line in made.lines:
        size = formatting.size(line.memory) if line.memory else ""
        counts = [formatting.number(line.partitions) if line.partitions else "", str(line.waves or "")]
        time = (formatting.span(line.elapsed) if line.elapsed else "") + (" (!)" if line.late else "")
        rows.append([line.node, line.executor, size, *counts, time, *_cells(line.usage), *_end(made, line)])
    rows.append(["in all", "", "", "", "", formatting.span(seconds), *_cells(made.usage), *_end(made, None)])
    where = f"{formatting.size(assumed.bytes)} in each source of files, " if assumed.bytes else ""
    slots = f"{assumed.slots:,} slots of each executor, " if assumed.slots else ""
    stages = "".join(f"{formatting.size(size)} from {stage}, " for stage, size in assumed.made.items())
    rate = formatting.size(assumed.rate)
    how = f"assumed: {where}{slots}{stages}{rate}/s in each task, {assumed.start:g} s beside its data"
    late = "(!) a task would take longer than its executor allows; --assume STAGE=SIZE tells what a stage makes"
    warned = [late] if any(line.late for line in made.lines) else []
    return [*formatting.columns(rows), "", *warned, how, f"prices: {made.prices}"]


def spent_lines(made: Bill) -> list[str]:
    """The measured usage of a run, by node."""
    rows = [["segment", "executor", "attempts", "time", *_USAGE, "reads", "cost"]]
    for line in [*made.lines, None]:
        rows.append(_spent(made, line))
    missing = [f"not counted: {', '.join(made.unknown)}"] if made.unknown else []
    return ["", *formatting.columns(rows), "", *missing, f"prices: {made.prices}"]


_USAGE = ("GB-seconds", "calls", "puts", "lists", "gets", "actions")


def _spent(made: Bill, line: BillLine | None) -> list[str]:
    usage = line.usage if line else made.usage
    name = [line.node, line.executor] if line else ["in all", ""]
    attempts = formatting.number(usage.attempts) if usage.attempts else ""
    return [*name, attempts, formatting.span(usage.seconds) if usage.seconds else "", *_cells(usage), *_end(made, line)]


def _end(made: Bill, line: BillLine | None) -> list[str]:
    """The bytes read by source, and the cost."""
    usage, cost = (line.usage, line.cost) if line else (made.usage, made.cost)
    reads = ", ".join(f"{formatting.size(size)} {place}" for place, size in usage.moved.items())
    return [reads, money(cost, made.currency)]


def _cells(usage: Usage) -> list[str]:
    counts = [usage.calls or usage.attempts, usage.puts, usage.lists, usage.gets, usage.actions]
    seconds = f"{usage.gigabyte_seconds:,.3g}" if usage.gigabyte_seconds < 1000 else f"{usage.gigabyte_seconds:,.0f}"
    return [seconds if usage.gigabyte_seconds else "", *(formatting.number(count) if count else "" for count in counts)]
