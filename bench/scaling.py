"""The scaling experiments of PyWren (SoCC 2017) as calls of a session: how rates grow with the number of workers.

    python bench/scaling.py [--workers 1,2,4,8] [--seconds 2] [--svg docs/scaling.svg]

| measurement | each worker repeats for `--seconds` | unit |
|---|---|---|
| compute | the product of two matrices of 512 x 512 doubles, on one thread | GFLOPS, all workers |
| write, read | an object of 16 MB, to and from a SeaweedFS server on loopback that speaks S3 | MB/s, all workers |
| latency | an object of 128 B: write it, read it; PyWren used Redis | median milliseconds of the pair |
| objects | 128 B in a map of a shared object: put them, get them; processes only | median milliseconds of the pair |

A rate is the work of all calls, divided by the time from the first begin to the last end. Workers are processes of this
machine, or functions of an emulated AWS Lambda, which share its cores: beyond these, compute cannot grow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from emulators.lambda_place import lambda_place
from harness.pictures import axes, line, picture, text

from treadle.client import Session, session
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.objects import Keepers, Map
from treadle.primitives.testing.s3 import S3Endpoint, seaweedfs

SIZE, LARGE, SMALL = 512, 16 << 20, 128
LOCAL = "[bench]\nslots = {workers}\n"


class Done(NamedTuple):
    """The work of one call."""

    began: float
    ended: float
    work: float
    """Operations or bytes."""
    median: float
    """Seconds of one repetition."""


def repeated(once: Callable[[], object], work: float, seconds: float) -> Done:
    once()
    took, began = [], time.time()
    while time.time() - began < seconds:
        start = time.perf_counter()
        once()
        took.append(time.perf_counter() - start)
    return Done(began, time.time(), work * len(took), statistics.median(took))


# -- the calls


def multiply(seat: int, seconds: float) -> Done:
    import numpy as np

    a, b = np.random.default_rng(seat).random((2, SIZE, SIZE))
    return repeated(lambda: a @ b, 2 * SIZE**3, seconds)


def write(seat: int, seconds: float, store: Callable[[], Any]) -> Done:
    s3, data = store(), os.urandom(LARGE)
    return repeated(lambda: s3.put(f"large/{seat}", data), LARGE, seconds)


def read(seat: int, seconds: float, store: Callable[[], Any]) -> Done:
    s3 = store()
    s3.put(f"large/{seat}", os.urandom(LARGE))
    return repeated(lambda: s3.get(f"large/{seat}"), LARGE, seconds)


def pair(seat: int, seconds: float, store: Callable[[], Any]) -> Done:
    s3, data = store(), os.urandom(SMALL)
    return repeated(lambda: (s3.put(f"small/{seat}", data), s3.get(f"small/{seat}")), 2, seconds)


def object_pair(seat: int, seconds: float, values: Any) -> Done:
    data = os.urandom(SMALL)
    return repeated(lambda: (values.put(seat, data), values.get(seat)), 2, seconds)


def opened(url: str, options: Mapping[str, str]) -> Any:
    from treadle.primitives.stores.store import Store

    return Store.open(url, **options)


# -- the places


@contextmanager
def on_this_machine(home: Home, workers: int) -> Iterator[Session]:
    with _session(home, LOCAL.format(workers=workers), {}) as found:
        yield found


@contextmanager
def on_lambda(home: Home, workers: int) -> Iterator[Session]:
    with lambda_place(home.path / "functions", concurrency=workers) as place:
        place.deploy(str(home.key))
        profile = place.profile("bench", sizes=[2048], concurrency=workers)
        with _session(home, profile, place.emulator.credentials) as found:
            yield found


@contextmanager
def _session(home: Home, profile: str, environment: Mapping[str, str]) -> Iterator[Session]:
    home.profiles.write_text(profile)
    os.environ.update(environment)
    try:
        with session("scaling", profile="bench", home=home.path, show=False) as found:
            yield found
    finally:
        embedded.down(home)


PLACES = {"processes": on_this_machine, "emulated Lambda": on_lambda}


# -- measuring


class Row(NamedTuple):
    place: str
    workers: int
    gflops: float
    written: float
    read: float
    latency: float
    objects: float | None


def measured(place: str, workers: int, seconds: float, s3: S3Endpoint, values: Any) -> Row:
    with tempfile.TemporaryDirectory(prefix="treadle-scaling-") as folder, PLACES[place](Home(folder), workers) as s:
        list(s.map(time.sleep, [0.5] * workers).results())
        store = partial(opened, "s3://treadle/scaling", s3.options)
        rate, middle = partial(_rate, s, workers, seconds), partial(_latency, s, workers, seconds)
        return Row(
            place,
            workers,
            rate(multiply) / 1e9,
            rate(write, store) / 1e6,
            rate(read, store) / 1e6,
            middle(pair, store) * 1e3,
            middle(object_pair, values) * 1e3 if place == "processes" else None,
        )


def _calls(s: Session, workers: int, seconds: float, function: Callable[..., Done], *given: Any) -> list[Done]:
    return list(s.starmap(function, [(seat, seconds, *given) for seat in range(workers)]).results())


def _rate(*given: Any) -> float:
    done = _calls(*given)
    return sum(one.work for one in done) / (max(one.ended for one in done) - min(one.began for one in done))


def _latency(*given: Any) -> float:
    return statistics.median(one.median for one in _calls(*given))


# -- output


def table(rows: list[Row]) -> str:
    lines = [
        "| workers | | GFLOPS | write MB/s | read MB/s | latency ms | object ms |",
        "|--:|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        shared = "" if row.objects is None else f"{row.objects:.3f}"
        rates = f"{row.gflops:.1f} | {row.written:.0f} | {row.read:.0f} | {row.latency:.2f} | {shared}"
        lines.append(f"| {row.workers} | {row.place} | {rates} |")
    return "\n".join(lines)


_WIDTH, _HEIGHT, _LEFT, _TOP = 240, 140, 60, 44
_COLOURS = {"processes": "#2c5aa0", "emulated Lambda": "#c0392b"}
_PANELS = {"GFLOPS": "gflops", "write MB/s": "written", "read MB/s": "read", "latency ms": "latency"}


def drawn(rows: list[Row]) -> str:
    """A panel for each measurement, from zero, with a line for each place."""
    panels = [_panel(rows, title, field, index) for index, (title, field) in enumerate(_PANELS.items())]
    return picture(2 * (_WIDTH + 2 * _LEFT), 2 * (_HEIGHT + 2 * _TOP), panels)


def _panel(rows: list[Row], title: str, field: str, index: int) -> str:
    left, top = _LEFT + index % 2 * (_WIDTH + 2 * _LEFT), _TOP + index // 2 * (_HEIGHT + 2 * _TOP)
    most, highest = max(row.workers for row in rows), max(getattr(row, field) for row in rows) * 1.1
    parts = [
        axes(left, top, left + _WIDTH, top + _HEIGHT),
        text(left, top - 10, title),
        text(left - 40, top + 8, f"{highest:,.0f}"),
    ]
    for one in sorted({row.workers for row in rows}):
        parts.append(text(left + _WIDTH * one / most, top + _HEIGHT + 15, f"{one}"))
    for number, (place, colour) in enumerate(_COLOURS.items()):
        points = [(row.workers, getattr(row, field)) for row in rows if row.place == place]
        places = [(left + _WIDTH * x / most, top + _HEIGHT * (1 - y / highest)) for x, y in points]
        parts += line(places, colour), text(left + 70 + 70 * number, top - 10, place, colour)
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, seaweedfs() as s3, Keepers(Path(folder) / "objects") as keepers:
        values = keepers.object("values", Map)
        for place in PLACES:
            for workers in map(int, given.workers.split(",")):
                rows.append(measured(place, workers, given.seconds, s3, values))
                print(rows[-1], flush=True)
    print(table(rows))
    if given.svg:
        given.svg.write_text(drawn(rows))


if __name__ == "__main__":
    main()
