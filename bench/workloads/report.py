"""Renders the figures of one run as Markdown. The text below "## Remarks" is kept.

python -m workloads.report [--results FILE] [--output bench/WORKLOADS.md]     (in the folder bench)
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.settings import BENCH

from workloads.settings import GOALS, LEFT_OUT, RESULTS, TITLES, Entry, Goal, Workload

OUTPUT = BENCH / "WORKLOADS.md"
REMARKS = "## Remarks"
Record = dict[str, Any]


class Figures:
    """The records of one run, by entry."""

    def __init__(self, lines: Sequence[Record]) -> None:
        self.about, *self.records = lines
        self._of = {_entry(record): record for record in self.records}

    def median(self, entry: Entry) -> float | None:
        seconds = self._of.get(entry, {}).get("seconds")
        return statistics.median(seconds) if seconds else None

    def of(self, workload: Workload) -> list[Record]:
        """The fastest first, without records that lack a figure."""
        found = [record for record in self.records if record["workload"] == workload and record["seconds"]]
        return sorted(found, key=lambda record: statistics.median(record["seconds"]))


class Judged(NamedTuple):
    """A goal with its measured value."""

    goal: Goal
    ours: float | None
    other: float | None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.other if self.ours and self.other else None

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured"
        return "met" if self.ratio <= self.goal.factor else "**not met**"


def judged(figures: Figures) -> list[Judged]:
    return [Judged(goal, figures.median(goal.ours), figures.median(goal.other)) for goal in GOALS]


def render(figures: Figures, remarks: str) -> str:
    parts = ["# Workloads", _about(figures), "## Goals", _goals(figures)]
    for workload, title in TITLES.items():
        if records := figures.of(workload):
            parts += [f"## {title}", _table(figures, workload, records)]
    parts += ["## Breakdown of treadle's time", _spent(figures), "## Not measured", _absent(figures)]
    return "\n\n".join([*parts, REMARKS]) + remarks.rstrip() + "\n"


def _about(figures: Figures) -> str:
    about = figures.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    date = about["date"][:16].replace("T", " ")
    return f"""Measured {date} UTC by `make workloads`, all in one run, rounds in turn: {about["cores"]} cores
({about["processor"]}), {about["memory GB"]} GB of memory, Linux {about["kernel"]}, Python {about["python"]}; load when
it began: {about["load"]}. The [README](README.md#workloads)
defines the timed sections and describes each rival.

Versions: {versions}, {", ".join(pin.replace("==", " ") for pin in about["packages"])}."""


def _goals(figures: Figures) -> str:
    rows = []
    for one in judged(figures):
        title = TITLES[one.goal.ours.workload].partition(":")[0]
        bound = f"at most {one.goal.factor:g} x {one.goal.other.name}"
        what = f"{title}{', ' + one.goal.ours.variant if one.goal.ours.variant else ''}: {bound}"
        ratio = "" if one.ratio is None else f"{one.ratio:.3g}"
        rows.append([what, time(one.ours), time(one.other), ratio, one.verdict])
    return table(["", "treadle", "the other", "ratio", ""], rows)


def _table(figures: Figures, workload: Workload, records: list[Record]) -> str:
    floor = figures.median(Entry(workload, "floor"))
    rows = []
    for record in records:
        median = statistics.median(record["seconds"])
        of_floor = f"{median / floor:.2f}" if floor else ""
        note = "; ".join(filter(None, [record.get("note"), record.get("error")]))
        rounds = str(len(record["seconds"]))
        rows.append([_entry(record).name, time(median), time(min(record["seconds"])), rounds, of_floor, note])
    return table(["", "median", "least", "rounds", "of the floor", ""], rows)


def _spent(figures: Figures) -> str:
    """Medians of the parts of a run, measured by its client."""
    rows = []
    for record in figures.records:
        parts = [one for one in record["spent"] if one]
        if parts:
            names = ("prepared", "done", "read")
            medians = [statistics.median(one.get(name, 0.0) for one in parts) for name in names]
            entry = _entry(record)
            rows.append([f"{entry.workload}{', ' + entry.variant if entry.variant else ''}", *map(time, medians)])
    return table(["", "checked, planned, bundled", "submitted until over", "result read"], rows)


def _absent(figures: Figures) -> str:
    failed = [record for record in figures.records if not record["seconds"]]
    found = [f"- {_entry(one).name}, {one['workload']}: {one.get('error', 'no round ended')}" for one in failed]
    return "\n".join([*found, *(f"- {what}: {reason}" for what, reason in LEFT_OUT.items())])


def line(record: Record) -> str:
    """A record as a line for the terminal."""
    entry, seconds = _entry(record), record["seconds"]
    said = f"median {time(statistics.median(seconds))} of {len(seconds)}" if seconds else ""
    return f"{entry.workload}: {entry.name}: {'; '.join(filter(None, [said, record.get('error')]))}"


def time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first and the last column are text, the others figures."""
    marks = ["---", *["--:"] * (len(head) - 2), "---" if head[-1] == "" else "--:"]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(head), marks, *rows])


def _entry(record: Record) -> Entry:
    return Entry(record["workload"], record["rival"], record["variant"])


def write(results: Path, output: Path | None) -> None:
    """Write to `output`, or to the terminal if it is None."""
    figures = Figures([json.loads(line) for line in results.read_text().splitlines()])
    before = output.read_text() if output and output.exists() else ""
    text = render(figures, before.partition(REMARKS)[2] or "\n\nNone.\n")
    if output:
        output.write_text(text)
        print("written:", output.name)
    else:
        print(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    write(arguments.results, arguments.output)
