"""Shared objects beside Redis, in one run: latency, throughput, an array, a barrier, and the loss of a keeper.

    python bench/environments.py                  # the environment of the Redis client, once
    python bench/objects.py [--only latency,rate,array,barrier,loss] [--svg docs/objects-loss.svg]

| measurement | what |
|---|---|
| `latency` | one caller; 1 KiB is set and got; median and 99th percentile of one call, in microseconds |
| `rate` | calls per second of 200 callers in 4 processes, with 800 objects on 2 keepers: additions, dot products |
| `array` | 8 processes add to 1,000 of 2^20 floats and read them; microseconds of both, and both per second |
| `barrier` | 1,800 callers in 6 processes: from the last arrival to the last release, in milliseconds |
| `loss` | calls of 100 callers; of 3 keepers with 2 replicas the primary is killed after a third of the time |

Callers of both rivals are threads of Python processes, so a part of each figure is Python's. Redis keeps nothing on
disk. It adds with INCRBY, and computes the dot product of 10,000 doubles in Lua, since it has no vectors. Its array is
a hash with 1,000 HINCRBYFLOAT in a pipeline, and HMGET.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.pictures import axes, line, picture, text
from harness.redis_server import redis_server
from harness.settings import RIVALS_PYTHON

OBJECTS, PARTIES, ELEMENTS, KIB = 800, 1800, 10_000, bytes(1024)
ROWS, CHOSEN = 1 << 20, 1000
MULTIPLY = f"local sum = 0.0; for i = 1, {ELEMENTS} do sum = sum + 0.5 * ARGV[1] end; return tostring(sum)"


# -- callers: processes of either rival


class Treadle:
    def __init__(self, place: str) -> None:
        self.handles: dict[str, Any] = pickle.loads(base64.b64decode(place))

    def set(self) -> None:
        self.handles["cell"].set(KIB)

    def get(self) -> None:
        assert self.handles["cell"].get() == KIB

    def add(self, number: int) -> None:
        self.handles[f"number {number}"].add(1)

    def dot(self, number: int) -> None:
        self.handles[f"vector {number}"].dot(2.0)

    def meet(self, _number: int) -> None:
        self.handles["barrier"].wait()

    def exchange(self, rows: list[int]) -> Any:
        array = self.handles["array"]
        array.push(rows, 1.0)
        return array.pull(rows)


class Redis:
    def __init__(self, place: str) -> None:
        import redis  # type: ignore[import-not-found]

        self._redis = redis.Redis(port=int(place), max_connections=PARTIES)
        self._multiply = self._redis.register_script(MULTIPLY)

    def set(self) -> None:
        self._redis.set("cell", KIB)

    def get(self) -> None:
        assert self._redis.get("cell") == KIB

    def add(self, number: int) -> None:
        self._redis.incrby(f"number {number}", 1)

    def dot(self, _number: int) -> None:
        self._multiply(args=[2.0])

    def exchange(self, rows: list[int]) -> Any:
        both = self._redis.pipeline(transaction=False)
        for row in rows:
            both.hincrbyfloat("array", row, 1.0)
        both.hmget("array", rows)
        return list(map(float, both.execute()[-1]))


def times(once: Callable[[], None], count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        once()
        found.append(time.perf_counter() - began)
    return found


def called_until(once: Callable[[int], None], end: float, ended: list[float]) -> None:
    choose = random.Random(threading.get_ident())
    while time.time() < end:
        once(choose.randrange(OBJECTS))
        ended.append(time.time())


def exchanged(target: Any, begin: float, end: float) -> list[float]:
    """Seconds of each push and pull of rows that are chosen beforehand."""
    choose = random.Random(os.getpid())
    rows = [choose.sample(range(ROWS), CHOSEN) for _ in range(50)]
    target.exchange(rows[0])
    time.sleep(max(0.0, begin - time.time()))
    found: list[float] = []
    while time.time() < end:
        began = time.perf_counter()
        assert len(target.exchange(rows[len(found) % len(rows)])) == CHOSEN
        found.append(time.perf_counter() - began)
    return found


def serve(target: Any, what: str, threads: int, begin: float, end: float) -> Any:
    """The work of one caller process, from time `begin` to `end`."""
    if what == "latency":
        target.set()
        return {name: times(getattr(target, name), 5000) for name in ("set", "get")}
    if what == "exchange":
        return exchanged(target, begin, end)
    once, ended = getattr(target, what), [list[float]() for _ in range(threads)]
    if what == "meet":
        once = arriving(once, ended)
        members = [threading.Thread(target=once, args=(number,)) for number in range(threads)]
    else:
        members = [threading.Thread(target=called_until, args=(once, end, mine)) for mine in ended]
        once(0)
        time.sleep(max(0.0, begin - time.time()))
    for one in members:
        one.start()
    for one in members:
        one.join()
    return ended


def arriving(once: Callable[[int], None], seen: list[list[float]]) -> Callable[[int], None]:
    """Call twice. In the first call each thread opens its session."""

    def twice(number: int) -> None:
        once(number)
        seen[number].append(time.time())
        once(number)
        seen[number].append(time.time())

    return twice


# -- the parent


def callers(rival: str, place: str, what: str, processes: int, threads: int, seconds: float) -> list[Any]:
    """The answers of all processes."""
    begin = time.time() + 2
    python = sys.executable if rival == "Treadle" else str(RIVALS_PYTHON)
    given = [json.dumps([rival, what, threads, begin, begin + seconds])]
    running = [
        subprocess.Popen(
            [python, __file__, "--serve", *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    for one in running:
        assert one.stdin is not None
        one.stdin.write(place)
        one.stdin.close()
    return [json.loads(one.stdout.read()) for one in running if one.stdout is not None]


@contextmanager
def kept(names: dict[str, tuple[type, tuple[Any, ...]]], **settings: Any) -> Iterator[tuple[Any, str]]:
    """Keepers with objects, and the place for callers."""
    from treadle.primitives.objects import Keepers

    with tempfile.TemporaryDirectory() as folder, Keepers(folder, **settings) as keepers:
        handles = {name: keepers.object(name, cls, *arguments) for name, (cls, arguments) in names.items()}
        yield keepers, base64.b64encode(pickle.dumps(handles)).decode()


def latency() -> None:
    from treadle.primitives.objects import Reference

    cell: dict[str, tuple[type, tuple[Any, ...]]] = {"cell": (Reference, ())}
    settings: dict[str, dict[str, Any]] = {
        "treadle": {}, "treadle, 2 replicas": {"replicas": 2}, "treadle, store": {"durability": "store"}
    }  # fmt: skip
    print("| latency, us | set p50 | p99 | get p50 | p99 |\n|---|--:|--:|--:|--:|")
    for name, more in settings.items():
        with kept(cell, **more) as (_, place):
            _show_latency(name, callers("Treadle", place, "latency", 1, 1, 0))
    with redis_server() as place:
        _show_latency("Redis", callers("Redis", place, "latency", 1, 1, 0))


def _show_latency(name: str, found: list[dict[str, list[float]]]) -> None:
    figures = [
        f"{1e6 * figure:.0f}"
        for took in found[0].values()
        for figure in (statistics.median(took), sorted(took)[len(took) * 99 // 100])
    ]
    print(f"| {name} | {' | '.join(figures)} |", flush=True)


def rate(seconds: float = 2.0) -> None:
    import numpy as np

    from treadle.primitives.objects import Number, shared

    class Vector:
        def __init__(self) -> None:
            self.values = np.full(ELEMENTS, 0.5)

        def dot(self, factor: float) -> float:
            return float(self.values @ (factor * self.values))

    numbers: dict[str, tuple[type, tuple[Any, ...]]] = {f"number {n}": (Number, ()) for n in range(OBJECTS)}
    vectors: dict[str, tuple[type, tuple[Any, ...]]] = {f"vector {n}": (shared(Vector), ()) for n in range(OBJECTS)}
    print("| calls per second | add | dot |\n|---|--:|--:|")
    for name, more in {"treadle": {"keepers": 2}, "treadle, 2 replicas": {"replicas": 2}}.items():
        with kept(numbers | vectors, shards=2, **more) as (_, place):
            _show_rate(name, *("Treadle", place), seconds)
    with redis_server() as place:
        _show_rate("Redis", "Redis", place, seconds)


def _show_rate(name: str, rival: str, place: str, seconds: float) -> None:
    counts = []
    for what in ("add", "dot"):
        found = callers(rival, place, what, 4, 50, seconds)
        counts.append(sum(len(mine) for one in found for mine in one) / seconds)
    print(f"| {name} | {' | '.join(f'{count:,.0f}' for count in counts)} |", flush=True)


def array(seconds: float = 3.0) -> None:
    from treadle.primitives.objects import Keepers

    print(f"| {CHOSEN:,} of {ROWS:,} floats, 8 processes | push and pull p50, us | per second |\n|---|--:|--:|")
    for keepers in (1, 2):
        with tempfile.TemporaryDirectory() as folder, Keepers(folder, shards=keepers, keepers=keepers) as found:
            place = base64.b64encode(pickle.dumps({"array": found.array("array", ROWS)})).decode()
            _show_array(f"treadle, keepers: {keepers}", "Treadle", place, seconds)
    with redis_server() as place:
        _show_array("Redis", "Redis", place, seconds)


def _show_array(name: str, rival: str, place: str, seconds: float) -> None:
    found = [one for mine in callers(rival, place, "exchange", 8, 1, seconds) for one in mine]
    print(f"| {name} | {1e6 * statistics.median(found):,.0f} | {len(found) / seconds:,.0f} |", flush=True)


def barrier() -> None:
    from treadle.primitives.objects import CyclicBarrier

    with kept({"barrier": (CyclicBarrier, (PARTIES,))}) as (_, place):
        found = [mine for one in callers("Treadle", place, "meet", 6, PARTIES // 6, 0) for mine in one]
    arrived, released = ([mine[turn] for mine in found] for turn in (0, 1))
    took = (max(released) - max(arrived)) * 1e3
    print(f"barrier of {PARTIES:,}: from the last arrival to the last release {took:.0f} ms", flush=True)


def loss(svg: Path | None, seconds: float = 30.0) -> None:
    from treadle.primitives.objects import Number

    numbers: dict[str, tuple[type, tuple[Any, ...]]] = {f"number {n}": (Number, ()) for n in range(OBJECTS)}
    with kept(numbers, keepers=3, replicas=2) as (keepers, place):
        primary = keepers.access.chain(0).newest().primary
        killed = threading.Timer(2 + seconds / 3, os.kill, (keepers.processes[primary], signal.SIGKILL))
        killed.start()
        began = time.time() + 2
        found = sorted(end for one in callers("Treadle", place, "add", 4, 25, seconds) for mine in one for end in mine)
        kept_sum = sum(keepers.object(f"number {n}", Number).get() for n in range(OBJECTS))
    bins = [0] * int(seconds * 10)
    for end in found:
        bins[min(max(0, int((end - began) * 10)), len(bins) - 1)] += 1
    gap = max(b - a for a, b in itertools.pairwise(found))
    before, after = (statistics.median(bins[a:b]) * 10 for a, b in ((20, 90), (160, 290)))
    exact = kept_sum - len(found) - 4
    print(f"loss of a keeper: {before:,.0f} calls/s before, {after:,.0f} after 6 s, no answer for {gap * 1e3:.0f} ms; ")
    print(f"{exact} calls lost or doubled of {len(found):,}", flush=True)
    if svg:
        svg.write_text(drawn(bins))


def drawn(bins: list[int]) -> str:
    """Calls per second over time."""
    wide, high, margin = 720, 220, 40
    top = max(bins) * 10
    step, scale = (wide - 2 * margin) / len(bins), (high - 2 * margin) / top
    points = [(margin + i * step, high - margin - 10 * one * scale) for i, one in enumerate(bins)]
    parts = [
        axes(margin, margin, wide - margin, high - margin),
        line(points, "#2c5aa0"),
        text(4, margin - 10, f"{top:,} calls/s"),
        text(margin + len(bins) * step / 3, high - 12, "the primary is killed"),
        text(wide - margin - 30, high - 12, f"{len(bins) / 10:.0f} s"),
    ]
    return picture(wide, high, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="latency,rate,array,barrier,loss")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        rival, *rest = json.loads(given.serve)
        print(json.dumps(serve(globals()[rival](sys.stdin.read()), *rest)))
        return
    if shutil.which("redis-server") is None or not RIVALS_PYTHON.exists():
        sys.exit("Redis or its client is missing: see bench/README.md")
    for name in given.only.split(","):
        {"latency": latency, "rate": rate, "array": array, "barrier": barrier, "loss": lambda: loss(given.svg)}[name]()


if __name__ == "__main__":
    main()
