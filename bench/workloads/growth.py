"""The growth of the cost of an item, a byte and a stage: treadle alone, from small to large. Writes a table and a
picture.

python -m workloads.growth [--largest 0.1] [--rounds 2] [--output docs/growth.md] [--svg docs/growth.svg]   (in bench)

`--largest` leaves out sizes above this share of the largest size.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import machine, tera
from harness.pictures import axes, line, picture, text
from harness.settings import BENCH, BENCH_DIR
from sorters.treadle import workflow as terasort

from treadle.dsl import Spec, Workflow, range_
from workloads.checks import check
from workloads.data import jobs
from workloads.report import table
from workloads.report import time as shown
from workloads.rivals.treadle import Rival
from workloads.settings import DATA, FULL

_PART = 64 << 20
"""Bytes of a partition of the sort."""
_NEWEST = 50
"""Runs that `treadle list` shows by default."""
_AT_ONCE = 100
"""Runs that fill the list side by side."""


class Series(NamedTuple):
    title: str
    of: str
    """The unit of the cost."""
    sizes: tuple[int, ...]
    label: Callable[[int], str]
    run: Callable[[Rival, int, Path], None]
    """The timed part, with an empty folder. The answer is checked."""
    before: Callable[[Rival, int], object] | None = None
    after: Callable[[int, Path], object] | None = None


def fan_out(rival: Rival, items: int, target: Path) -> None:
    rival.sizes = sizes = _replaced(items=items)
    check("fan_out", sizes, rival.fan_out("", target), target)


def one_by_one(rival: Rival, items: int, target: Path) -> None:
    rival.sizes = sizes = _replaced(items=items)
    check("fan_out", sizes, rival.fan_out("one by one", target), target)


def sort(rival: Rival, size: int, target: Path) -> None:
    source = tera.make(DATA, size)
    inputs = {"source": f"{source}/rec-*", "target": str(target / "sorted"), "partitions": max(2, size // _PART)}
    rival.submit(_in_parts(terasort("auto")), inputs)


def make_records(rival: Rival, size: int) -> None:  # noqa: ARG001
    tera.make(DATA, size)


def verify_sort(size: int, target: Path) -> None:
    tera.check(target, tera.expected(tera.make(DATA, size)))


def pipeline(rival: Rival, stages: int, target: Path) -> None:  # noqa: ARG001
    done = rival.chain(stages)
    assert done == stages * rival.sizes.width, done


def in_turn(rival: Rival, runs: int, target: Path) -> None:  # noqa: ARG001
    for _ in range(runs):
        rival.submit(_small())


def at_once(rival: Rival, runs: int, target: Path) -> None:  # noqa: ARG001
    rival.submit_all([_small()] * runs)


def fill_list(rival: Rival, runs: int) -> None:
    """Small runs, until the list has `runs` of them."""
    for listed in range(_listed(rival, runs), runs, _AT_ONCE):
        rival.submit_all([_small()] * min(_AT_ONCE, runs - listed))


def newest(rival: Rival, runs: int, target: Path) -> None:  # noqa: ARG001
    assert _listed(rival, _NEWEST) == min(_NEWEST, runs)


def _listed(rival: Rival, limit: int) -> int:
    return rival.command("list", "--limit", str(limit)).count("small-")


def _small() -> Spec:
    """A run of one task."""
    wf = Workflow("small")
    wf.map("one", range_(1), uses=jobs.same)
    return wf.spec()


def _in_parts(spec: Spec) -> Spec:
    """The sort with partitions of `_PART` bytes in place of whole files."""
    document = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for stage in ("sample", "sorted"):
        document["stages"][stage]["input"]["split"] = f"{_PART >> 20}MiB"
    return Spec.model_validate(document, by_alias=True, by_name=False)


def _replaced(**changes: int) -> Any:
    from dataclasses import replace

    return replace(FULL, **changes)


def _number(value: int) -> str:
    return f"{value:,}"


def _bytes(value: int) -> str:
    return f"{value >> 20:,} MiB"


SERIES = (
    Series("W1 fan-out, 256 partitions", "item", (1000, 10_000, 100_000, 1_000_000), _number, fan_out),
    Series("W1 fan-out, items one by one", "item", (1000, 10_000, 100_000), _number, one_by_one),
    Series(
        "W3 sort, partitions of 64 MiB",
        "MiB",
        (64 << 20, 256 << 20, 1 << 30, 4 << 30),
        _bytes,
        sort,
        make_records,
        verify_sort,
    ),
    Series("W8 pipeline of 4 tasks a stage", "stage", (1, 10, 50, 200, 500, 1000), _number, pipeline),
    Series("Runs of one task, one after the other", "run", (1, 10, 100, 1000), _number, in_turn),
    Series("Runs of one task, all at once", "run", (1, 10, 50, 200), _number, at_once),
    Series("List of the newest 50 among all runs", "run", (10, 100, 1000, 10_000), _number, newest, fill_list),
)


class Point(NamedTuple):
    size: int
    seconds: float
    """The minimum of the rounds."""

    def each(self, series: Series) -> float:
        return self.seconds / (self.size / (1 << 20) if series.of == "MiB" else self.size)


def measure(series: Series, largest: float, rounds: int) -> list[Point]:
    """Uses a new environment for each series."""
    with tempfile.TemporaryDirectory(prefix="g", dir=BENCH_DIR / "tmp") as folder:
        rival = Rival(FULL, Path(folder))
        rival.start()
        try:
            sizes = [size for size in series.sizes if size <= largest * series.sizes[-1]]
            _once(rival, series, sizes[0], Path(folder))
            return [_point(rival, series, size, rounds, Path(folder)) for size in sizes]
        finally:
            rival.stop()


def _point(rival: Rival, series: Series, size: int, rounds: int, folder: Path) -> Point:
    point = Point(size, min(_once(rival, series, size, folder) for _ in range(rounds)))
    print(f"{series.title}: {series.label(size)}: {shown(point.seconds)}", flush=True)
    return point


def _once(rival: Rival, series: Series, size: int, folder: Path) -> float:
    target = Path(tempfile.mkdtemp(prefix="round-", dir=folder))
    if series.before:
        series.before(rival, size)
    try:
        began = time.perf_counter()
        series.run(rival, size, target)
        seconds = time.perf_counter() - began
        if series.after:
            series.after(size, target)
        return seconds
    finally:
        rival.after()
        shutil.rmtree(target)


# -- output


def rendered(found: Sequence[tuple[Series, list[Point]]], about: dict[str, Any], picture: str) -> str:
    parts = [
        "# Growth",
        "These tables show how the cost of an item, a byte and a stage changes with the size of a run. Each time is "
        "the least of several rounds, from submission until the result is read, with all results durable. They were "
        f"made by `python -m workloads.growth` in the folder `bench`, on {about['cores']} cores "
        f"({about['processor']}) with {about['memory GB']} GB of memory.",
        f"![cost of one item, byte and stage against the size of the run]({picture})",
    ]
    for series, points in found:
        rows = [[series.label(one.size), shown(one.seconds), _cost(one.each(series))] for one in points]
        parts += [f"## {series.title}", table(["size", "run", f"per {series.of}"], rows)]
    return "\n\n".join(parts) + "\n"


def _cost(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


_WIDTH, _HEIGHT, _LEFT, _TOP = 240, 150, 60, 40


def drawn(found: Sequence[tuple[Series, list[Point]]]) -> str:
    """A panel for each series: cost of one unit by size, both logarithmic. A flat line is ideal."""
    panels = [_panel(series, points, index) for index, (series, points) in enumerate(found)]
    width, height = 2 * (_WIDTH + 2 * _LEFT), (len(found) + 1) // 2 * (_HEIGHT + 2 * _TOP)
    return picture(width, height, panels)


def _panel(series: Series, points: list[Point], index: int) -> str:
    left, top = _LEFT + index % 2 * (_WIDTH + 2 * _LEFT), _TOP + index // 2 * (_HEIGHT + 2 * _TOP)
    costs = [one.each(series) for one in points]
    low, high = min(costs) / 2, max(costs) * 2
    across = _scale(points[0].size, points[-1].size, left, left + _WIDTH)
    down = _scale(low, high, top + _HEIGHT, top)
    places = [(across(one.size), down(one.each(series))) for one in points]
    parts = [
        axes(left, top, left + _WIDTH, top + _HEIGHT),
        line(places, "#2c5aa0"),
        text(left, top - 14, f"{series.title}: cost of one {series.of}"),
    ]
    for one, (x, y) in zip(points, places, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#2c5aa0"/>')
        parts.append(text(x, y - 8, _cost(one.each(series)), more='text-anchor="middle"'))
        parts.append(text(x, top + _HEIGHT + 15, series.label(one.size), more='text-anchor="middle"'))
    return "\n".join(parts)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Maps a logarithmic scale to positions."""
    from math import log

    span = log(high / low) or 1.0
    return lambda value: start + (end - start) * log(value / low) / span


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=BENCH.parent / "docs" / "growth.md")
    parser.add_argument("--svg", type=Path, default=BENCH.parent / "docs" / "growth.svg")
    chosen = parser.parse_args()
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    (BENCH_DIR / "tmp").mkdir(parents=True, exist_ok=True)
    about = machine.facts()
    found = [(series, measure(series, chosen.largest, chosen.rounds)) for series in SERIES]
    print(json.dumps({series.title: points for series, points in found}))
    picture = os.path.relpath(chosen.svg, chosen.output.parent)
    chosen.output.write_text(rendered(found, about, picture))
    chosen.svg.write_text(drawn(found))


if __name__ == "__main__":
    main()
