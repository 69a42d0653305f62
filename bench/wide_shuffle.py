"""One level compared with two, for shuffles with growing numbers of parts: time, CPU time, memory of the driver, bytes
on record.

    python bench/wide_shuffle.py --sources 1000 --targets 1000 --rows 1000 --place host --levels two

Each call is one run in a fresh process, so the peak of its memory is the driver's in that run alone. Rows are two
64-bit integers; every target is summed, and the sum of sums is checked. CPU time is that of driver and workers, from
their start to their end.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.orchestrator.planner import exchanges
from treadle.primitives.stores.shared_memory import SHARED_MEMORY
from treadle.primitives.stores.store import Store

HERE = Path(__file__).parent
Rows = NDArray[np.int64]
_EVERYONE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def rows(partition: Iterator[int], *, count: int) -> Rows:
    """`count` rows (key, 1), the same for every run."""
    (seed,) = partition
    keys = np.random.default_rng(seed).integers(0, 1 << 62, count)
    return np.column_stack([keys, np.ones(count, np.int64)])


def keys(array: Rows) -> Rows:
    return array[:, 0]


def pairs(array: Rows) -> list[tuple[int, int]]:
    return [(key, one) for key, one in array.tolist()]


def total(values: Any) -> int:
    return sum(int(part[:, 1].sum()) if isinstance(part, np.ndarray) else len(part) for part in values.partitions())


def case(sources: int, targets: int, count: int, kind: str, place: str) -> Case:
    exchange = "direct" if place == "host" else "storage"
    made: dict[str, Any] = {"type": "map", "per": "partition", "uses": "wide_shuffle:rows", "with": {"count": count}}
    stages = {
        "made": {**made, "input": {"range": sources, "partitions": sources}},
        "spread": {"type": "shuffle", "input": "made", "by": "wide_shuffle:keys", "partitions": targets},
        "totals": {"type": "reduce", "input": "spread", "per": "partition", "uses": "wide_shuffle:total"},
        "sum": {"type": "reduce", "input": "totals", "per": "all", "uses": "wide_shuffle:add"},
    }
    if kind == "objects":
        stages["listed"] = {
            "type": "map",
            "per": "partition",
            "flat": True,
            "input": "made",
            "uses": "wide_shuffle:pairs",
        }
        stages["spread"] |= {"input": "listed", "by": "key"}
    defaults = {"exchange": exchange}
    return Case({"apiVersion": "treadle/v1", "name": "wide", "defaults": defaults, "stages": stages})


def add(values: Any) -> int:
    return sum(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("sources", "targets", "rows"):
        parser.add_argument(f"--{name}", type=int, default=1000)
    parser.add_argument("--kind", choices=["array", "objects"], default="array")
    parser.add_argument("--place", choices=["host", "store"], default="host")
    parser.add_argument("--levels", choices=["one", "two"], default="two")
    given = parser.parse_args()
    exchanges.WIDE = 0 if given.levels == "two" else sys.maxsize
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as shared,
    ):
        print(json.dumps({**vars(given), **measure(given, Path(folder), Path(shared))}))


def measure(given: argparse.Namespace, folder: Path, shared: Path) -> dict[str, Any]:
    harness = Harness(folder, HERE)
    host = shared if given.place == "host" else None
    engine = harness.engine(Store.open(f"file://{folder}/store"), harness.local(2, host), host)
    found = case(given.sources, given.targets, given.rows, given.kind, given.place)
    refused = harness.submit(engine, found, folder, "wide")
    assert refused is None, refused
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    result = harness.wait(engine.run("wide"), 3600)
    seconds, driver = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    harness.close()
    spent = sum(getattr(resource.getrusage(who), name) for who in _EVERYONE for name in ("ru_utime", "ru_stime"))
    (_, (total_rows,)), *_ = result.datasets["sum"]
    assert total_rows == given.sources * given.rows, total_rows
    record = sum(one.stat().st_size for one in (folder / "store/runs/wide/segments").rglob("*") if one.is_file())
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(spent, 2),
        "driver_seconds": round(driver, 2),
        "driver_mb": round((peak - before) / 1024),
        "peak_mb": round(peak / 1024),
        "record_mb": round(record / 1e6, 1),
    }


if __name__ == "__main__":
    main()
