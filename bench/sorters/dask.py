"""Dask futures around the numpy functions, on a worker process for each core."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from distributed import Client
from harness import tera
from rivals.dask import cluster, pick


def split(path: str, bounds: Any) -> tuple[Any, ...]:
    return tuple(tera.partition(path, bounds))


class Sorter:
    def start(self, folder: Path) -> None:
        self._cluster = cluster(os.cpu_count() or 1, folder)
        self._client = Client(self._cluster)
        self._client.submit(abs, 1).result()

    def sort(self, files: list[str], target: Path) -> None:
        submit = self._client.submit
        samples = self._client.gather(self._client.map(tera.sample, files, pure=False))
        bounds = tera.bounds(samples, tera.FILES)
        splits = [submit(split, path, bounds, pure=False) for path in files]
        picks = [[submit(pick, parts, r, pure=False) for parts in splits] for r in range(tera.FILES)]
        del splits
        merges = [submit(tera.merge, picks[r], f"{target}/part-{r}", pure=False) for r in range(tera.FILES)]
        self._client.gather(merges)

    def stop(self) -> None:
        self._client.close()
        self._cluster.close()
