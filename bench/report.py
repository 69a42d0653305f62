"""Renders the figures of one run as Markdown. The text below "## Remarks" is kept.

python bench/report.py [--results FILE] [--output bench/RESULTS.md]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.plan import INTEGERS, LARGE, MESSAGE, SMALL
from harness.settings import BENCH, RESULTS, RIVALS

REMARKS = "## Remarks"
Figure = dict[str, Any]

_TABLES = (
    ("broadcast", SMALL, "Broadcast of 100 B", "From seat 0 to all others, each of which reads it."),
    ("broadcast", LARGE, "Broadcast of 100 MB", "From seat 0 to all others, each of which reads all of it."),
    ("reduce", SMALL, "Reduce of 100 B", "Element-wise sum of an array of each member, at one member."),
    ("reduce", LARGE, "Reduce of 100 MB", "Element-wise sum of an array of each member, at one member."),
    (
        "shuffle",
        INTEGERS,
        "Shuffle of 1M integers",
        "8 MB in all, to the member they are congruent to; splitting included.",
    ),
    ("barrier", 0, "Barrier", "From the last arrival to the last release."),
    (
        "round trip",
        MESSAGE,
        "Round trip of 1 KiB",
        "Between two members, one at a time; then the 99th percentile. `direct`: over TCP.",
    ),
)


class Run:
    """The lines of a results file."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.about: Figure = lines[0]
        self.lines: list[Figure] = lines[1:]

    def find(self, rival: str, operation: str, size: int, members: int | None) -> Figure | None:
        for line in self.lines:
            if (line["rival"], line.get("operation"), line.get("size")) == (rival, operation, size) and (
                line.get("members") == members and "median" in line
            ):
                return line
        return None

    def median(self, rival: str, operation: str, size: int, members: int | None = None) -> float | None:
        found = self.find(rival, operation, size, members)
        return None if found is None else float(found["median"])

    def members(self, operation: str, size: int) -> list[int]:
        of = (operation, size)
        return sorted({line["members"] for line in self.lines if (line.get("operation"), line.get("size")) == of})

    @property
    def sorted_bytes(self) -> int:
        return max((line["size"] for line in self.lines if line.get("operation") == "terasort"), default=0)


class Target(NamedTuple):
    """`seen` must be at most (or, if `below`, less than) `bound`. None: not measured."""

    what: str
    seen: float | None
    bound: float | None
    below: bool = False

    @property
    def row(self) -> list[str]:
        if self.seen is None or self.bound is None:
            return [self.what, _time(self.seen), _time(self.bound), "", "not measured"]
        met = self.seen < self.bound if self.below else self.seen <= self.bound
        return [self.what, _time(self.seen), _time(self.bound), f"{self.seen / self.bound:.2f}", _met(met)]


def _met(met: bool) -> str:
    return "met" if met else "**not met**"


def targets(run: Run) -> list[Target]:
    of, size = run.median, run.sorted_bytes
    broadcast, reduce = of("direct", "broadcast", LARGE, 8), of("direct", "reduce", LARGE, 8)
    direct = of("direct", "terasort", size)
    return [
        Target("round trip of 1 KiB: below 100 us", of("direct", "round trip", MESSAGE, 2), 100e-6, below=True),
        Target("barrier of 64: below 5 ms", of("direct", "barrier", 0, 64), 5e-3, below=True),
        Target(
            "broadcast of 100 MB to 8: at most 1.5 x the floor", broadcast, _by(1.5, of("floor", "broadcast", LARGE, 8))
        ),
        Target("broadcast of 100 MB to 8: faster than Ray", broadcast, of("Ray", "broadcast", LARGE, 8), below=True),
        Target("reduce of 100 MB over 8: at most 1.2 x the floor", reduce, _by(1.2, of("floor", "reduce", LARGE, 8))),
        Target("terasort: faster than over files", direct, of("storage file", "terasort", size), below=True),
        Target("terasort: faster than over S3", direct, of("storage S3", "terasort", size), below=True),
    ]


def _by(factor: float, seconds: float | None) -> float | None:
    return None if seconds is None else factor * seconds


def against(run: Run, rival: str) -> Iterator[tuple[str, float]]:
    """Every figure that both have, and direct's time divided by the rival's."""
    for operation, size, title, _ in _TABLES:
        for members in run.members(operation, size):
            ours, theirs = (run.median(one, operation, size, members) for one in ("direct", rival))
            if ours is not None and theirs is not None:
                yield f"{title.lower()} over {members}", ours / theirs


def _redis_row(run: Run) -> list[str]:
    ratios = sorted(against(run, "Redis"), key=lambda one: one[1])
    if not ratios:
        return ["every figure ahead of Redis", "", "", "", "not measured"]
    behind = [f"{what} ({ratio:.2f})" for what, ratio in ratios if ratio >= 1]
    seen = f"{len(ratios) - len(behind)} of {len(ratios)}"
    worst = f"{ratios[-1][1]:.2f} at worst"
    return ["every figure ahead of Redis", seen, "", worst, _met(not behind) + "; ".join(["", *behind])]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    value, unit = (seconds * 1e6, "us") if seconds < 1e-3 else (seconds * 1e3, "ms")
    if value >= 1e4:
        value, unit = seconds, "s"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def _measured(run: Run, operation: str, size: int) -> str:
    tail = operation == "round trip"

    def cell(rival: str, members: int) -> str:
        found = run.find(rival, operation, size, members)
        if found is None:
            return "-"
        return f"{_time(found['median'])} ({_time(found['p99' if tail else 'min'])})"

    rows = [[str(members), *(cell(rival, members) for rival in RIVALS)] for members in run.members(operation, size)]
    return _table(["members", *RIVALS], rows)


def _sorted(run: Run) -> str:
    rows = []
    for rival in RIVALS:
        found = run.find(rival, "terasort", run.sorted_bytes, None)
        if found is not None:
            rows.append([rival, _time(found["median"]), _time(found["min"])])
    return _table(["", "median", "least"], rows)


def _absent(run: Run) -> list[str]:
    """The missing figures, with their reasons."""
    found = []
    for line in run.lines:
        reason = line.get("skipped") or line.get("error")
        if reason:
            what = " ".join(str(line[key]) for key in ("operation", "size") if key in line)
            members = f"{line['members']} members" if "members" in line else ""
            where = ", ".join(filter(None, [line["rival"], members, what]))
            found.append(f"- {where}: {reason.splitlines()[0]}")
    return found


def _about(run: Run) -> str:
    about = run.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    date, command = about["date"][:16].replace("T", " "), "make bench" + ("" if about["quick"] else " FULL=1")
    return f"""Measured {date} UTC by `{command}`, all in one run on one machine: {about["cores"]} cores
({about["processor"]}), {about["memory GB"]} GB of memory, Linux {about["kernel"]}, Python {about["python"]}; load when
it began: {about["load"]}.

Versions: {versions}.

The [README](README.md) defines the timed sections and describes each rival. Cells: median (least) of the rounds.
`floor`: no library, shared memory or a raw socket. `direct`: treadle's channels; for terasort, the whole engine with
`exchange: direct`. `storage`: the same over an object store, a folder of files or SeaweedFS."""


def render(run: Run, remarks: str) -> str:
    parts = ["# Results", _about(run), "## Targets"]
    parts.append(
        _table(["", "seen", "bound", "seen / bound", ""], [*[one.row for one in targets(run)], _redis_row(run)])
    )
    for operation, size, title, about in _TABLES:
        parts += [f"## {title}", about, _measured(run, operation, size)]
    parts += [
        f"## Terasort of {run.sorted_bytes >> 20} MiB",
        "8 files of 100-byte records to 8 sorted files.",
        _sorted(run),
    ]
    if absent := _absent(run):
        parts += ["## Not measured", "\n".join(absent)]
    return "\n\n".join([*parts, REMARKS]) + remarks.rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=BENCH / "RESULTS.md")
    chosen = parser.parse_args()
    before = chosen.output.read_text() if chosen.output.exists() else ""
    remarks = before.partition(REMARKS)[2] or "\n\nNone.\n"
    chosen.output.write_text(render(Run(chosen.results), remarks))
    print("written:", chosen.output.name)


if __name__ == "__main__":
    main()
