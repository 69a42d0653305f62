"""Sizes, rivals of each workload, and the goals. Standard library only."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from harness.settings import BENCH, BENCH_DIR, RIVALS_PYTHON

PROJECT = BENCH / "workloads" / "project"
"""The folder of the user's functions."""
LIBRARIES = BENCH_DIR / "libraries"
"""DuckDB and Polars, for the project's own interpreter."""
RESULTS = BENCH_DIR / "workloads.jsonl"
DATA = BENCH_DIR / "workloads"


@dataclass(frozen=True)
class Sizes:
    """The sizes of the inputs. Arrays are float64 or int64."""

    items: int = 10_000
    """Items of the fan-out."""
    text_bytes: int = 256 << 20
    text_files: int = 16
    vocabulary: int = 50_000
    word_files: int = 4
    sort_bytes: int = 512 << 20
    array: int = 12_500_000
    """Numbers in the broadcast's array, and in each array of the reduce: 100 MB."""
    shuffled: int = 1_000_000
    """Integers of each producer; also `shuffled_large`."""
    shuffled_large: int = 10_000_000
    tasks: int = 8
    """Tasks of broadcast, reduce, shuffle and k-means."""
    points: int = 400_000
    dimensions: int = 20
    centroids: int = 25
    iterations: int = 20
    stages: int = 5
    width: int = 4


FULL = Sizes()
SMALL = Sizes(
    items=500,
    text_bytes=2 << 20,
    vocabulary=2000,
    sort_bytes=4 << 20,
    array=100_000,
    shuffled=20_000,
    shuffled_large=50_000,
    points=8000,
    iterations=4,
)
"""A trial of all parts. Its figures have no meaning."""

Workload = Literal["fan_out", "words", "sort", "broadcast", "reduce", "shuffle", "shuffle_large", "k_means", "pipeline"]
TITLES: dict[Workload, str] = {
    "fan_out": "W1 fan-out: 10,000 items through a function that does nothing",
    "words": "W2 word count: 256 MB in 16 files",
    "sort": "W3 sort: 512 MB of 100-byte records, 8 files in, 8 sorted files out",
    "broadcast": "W4 broadcast: an array of 100 MB to 8 tasks",
    "reduce": "W5 reduce: element-wise sum of 8 arrays of 100 MB",
    "shuffle": "W6 small shuffle: 8 x 1 million integers, from 8 tasks to 8 tasks",
    "shuffle_large": "W6 large shuffle: 8 x 10 million integers, from 8 tasks to 8 tasks",
    "k_means": "W7 k-means: 400,000 x 20 points, 25 centroids, 20 iterations",
    "pipeline": "W8 pipeline: 5 stages of 4 tasks that do nothing, each after all tasks of the previous stage",
}


def own(folder: Path) -> Path:
    """The rival's part of a child's folder. It has a short name, since Ray puts sockets below it."""
    return folder / "o"


class Rival(NamedTuple):
    """A rival: its module, and the interpreter that it needs."""

    module: str
    environment: Literal["project", "rivals", "lithops", "spark"]

    @property
    def python(self) -> Path:
        if self.environment == "project":
            return Path(sys.executable)
        return RIVALS_PYTHON if self.environment == "rivals" else BENCH_DIR / self.environment / "bin" / "python"


RIVALS: dict[str, Rival] = {
    "floor": Rival("workloads.rivals.floor", "project"),
    "treadle": Rival("workloads.rivals.treadle", "project"),
    "Ray": Rival("workloads.rivals.ray", "rivals"),
    "Dask": Rival("workloads.rivals.dask", "rivals"),
    "Temporal": Rival("workloads.rivals.temporal", "project"),
    "DuckDB": Rival("workloads.rivals.duckdb", "project"),
    "Polars": Rival("workloads.rivals.polars", "project"),
    "Spark": Rival("workloads.rivals.spark", "spark"),
    "Lithops": Rival("workloads.rivals.lithops", "lithops"),
}


class Entry(NamedTuple):
    """A row: one rival on one workload, in one of its variants."""

    workload: Workload
    rival: str
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.rival}, {self.variant}" if self.variant else self.rival


EACH, RECORDS, POLARS, DUCKDB = "one by one", "record by record", "Polars in the map", "DuckDB in the map"
_VARIANTS: dict[tuple[Workload, str], tuple[str, ...]] = {
    ("fan_out", "floor"): ("", EACH),
    ("fan_out", "treadle"): ("", EACH),
    ("fan_out", "Ray"): (EACH,),
    ("fan_out", "Dask"): (EACH,),
    ("fan_out", "Temporal"): ("100 in an activity",),
    ("words", "floor"): ("", RECORDS),
    ("words", "treadle"): ("", RECORDS, POLARS, DUCKDB),
}
_ON: dict[Workload, tuple[str, ...]] = {
    "fan_out": ("floor", "treadle", "Ray", "Dask", "Temporal"),
    "words": ("floor", "treadle", "Ray", "Dask", "DuckDB", "Polars", "Spark", "Lithops"),
    "sort": ("floor", "treadle", "Ray", "Dask", "DuckDB", "Polars"),
    "broadcast": ("floor", "treadle", "Ray", "Dask", "Spark", "Lithops"),
    "reduce": ("floor", "treadle", "Ray", "Dask"),
    "shuffle": ("floor", "treadle", "Ray", "Dask", "Spark", "Lithops"),
    "shuffle_large": ("floor", "treadle", "Ray", "Dask", "Spark"),
    "k_means": ("floor", "treadle", "Ray", "Dask", "Spark"),
    "pipeline": ("floor", "treadle", "Ray", "Dask", "Temporal", "Spark", "Lithops"),
}
ENTRIES = [
    Entry(workload, rival, variant)
    for workload, rivals in _ON.items()
    for rival in rivals
    for variant in _VARIANTS.get((workload, rival), ("",))
]

LEFT_OUT = {
    "Lithops, fan-out": "a new interpreter for each task: 100 items took 32 s, 10,000 did not end within 70 s",
    "Spark, fan-out": "23 ms for each task of one item: 10,000 did not end within 90 s",
    "Temporal, fan-out one by one": "an activity for each of 10,000 items takes 80 s, in child workflows of 1,000",
}


class Goal(NamedTuple):
    """The median of `ours` is at most `factor` times that of `other`."""

    ours: Entry
    factor: float
    other: Entry


def _goals() -> list[Goal]:
    def ours(workload: Workload, variant: str = "") -> Entry:
        return Entry(workload, "treadle", variant)

    near_floor: list[tuple[Workload, float]] = [
        ("sort", 1.25),
        ("broadcast", 1.3),
        ("reduce", 1.3),
        ("shuffle", 1.3),
        ("shuffle_large", 1.3),
        ("k_means", 1.2),
    ]
    as_ray: tuple[Workload, ...] = ("broadcast", "reduce", "shuffle", "shuffle_large")
    return [
        Goal(ours("fan_out"), 0.05, Entry("fan_out", "Ray", EACH)),
        Goal(ours("fan_out", EACH), 0.25, Entry("fan_out", "Ray", EACH)),
        Goal(ours("words"), 1.1, Entry("words", "floor")),
        Goal(ours("words", RECORDS), 1.3, Entry("words", "floor", RECORDS)),
        Goal(ours("words", POLARS), 1.5, Entry("words", "DuckDB")),
        Goal(ours("words", DUCKDB), 1.5, Entry("words", "DuckDB")),
        *(Goal(ours(workload), factor, Entry(workload, "floor")) for workload, factor in near_floor),
        *(Goal(ours(workload), 1.0, Entry(workload, "Ray")) for workload in as_ray),
        Goal(ours("pipeline"), 1.0, Entry("pipeline", "Temporal")),
    ]


GOALS = _goals()
