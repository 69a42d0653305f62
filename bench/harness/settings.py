"""Paths and rivals. Standard library only."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

BENCH = Path(__file__).resolve().parent.parent
BENCH_DIR = Path(os.environ.get("BENCH_DIR") or Path(tempfile.gettempdir()) / "treadle-bench")
"""The rivals' environment, data and results. They are kept."""
SHARED_MEMORY = Path(os.environ.get("BENCH_SHARED_MEMORY") or "/dev/shm")
"""The place of segments and host blocks. The runner gives every child its own folder, and removes it."""
RIVALS_PYTHON = BENCH_DIR / "rivals" / "bin" / "python"
RESULTS = BENCH_DIR / "results.jsonl"


class Entry(NamedTuple):
    """A rival: its module below `rivals` or `sorters`, its class, and its environment."""

    module: str
    name: str
    environment: Literal["project", "rivals"]

    @property
    def python(self) -> str:
        return sys.executable if self.environment == "project" else str(RIVALS_PYTHON)


RIVALS = {
    "floor": Entry("rivals.floor", "Rival", "project"),
    "direct": Entry("rivals.direct", "Rival", "project"),
    "storage file": Entry("rivals.storage", "Rival", "project"),
    "storage S3": Entry("rivals.storage", "S3", "project"),
    "Redis": Entry("rivals.redis", "Rival", "rivals"),
    "Ray": Entry("rivals.ray", "Rival", "rivals"),
    "Dask": Entry("rivals.dask", "Rival", "rivals"),
}
"""In the order of the report's columns."""

SORTERS = {
    "floor": Entry("sorters.floor", "Sorter", "project"),
    "direct": Entry("sorters.treadle", "Direct", "project"),
    "storage file": Entry("sorters.treadle", "StorageFile", "project"),
    "storage S3": Entry("sorters.treadle", "StorageS3", "project"),
    "Ray": Entry("sorters.ray", "Sorter", "rivals"),
    "Dask": Entry("sorters.dask", "Sorter", "rivals"),
}
