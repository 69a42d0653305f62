"""Polars in one process, its streaming engine, a thread for each processor."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from workloads import data
from workloads.rivals.base import Base
from workloads.settings import LIBRARIES

sys.path.append(str(LIBRARIES))
os.environ["POLARS_MAX_THREADS"] = str(os.cpu_count())
import polars as pl  # type: ignore[import-not-found]  # in LIBRARIES


class Rival(Base):
    def words(self, variant: str, target: Path) -> None:  # noqa: ARG002
        words = _lines(data.text(self.sizes), "text-*").select(pl.col("line").str.split(" ").explode().alias("word"))
        counts = words.filter(pl.col("word") != "").group_by("word").agg(pl.len())
        counts.sink_csv(f"{target}/counts.csv", separator="\t", include_header=False, engine="streaming")

    def sort(self, variant: str, target: Path) -> None:  # noqa: ARG002
        key = pl.col("line").str.slice(0, 10)
        ordered = _lines(data.records(self.sizes), "rec-*").sort(key).collect(engine="streaming")
        for part in range(self.sizes.tasks):
            begin, end = (len(ordered) * one // self.sizes.tasks for one in (part, part + 1))
            ordered[begin:end].write_csv(f"{target}/part-{part}", include_header=False, quote_style="never")


def _lines(folder: Path, pattern: str) -> Any:
    files = sorted(folder.glob(pattern))
    return pl.scan_csv(files, has_header=False, separator="\x01", quote_char=None, schema={"line": pl.String})
