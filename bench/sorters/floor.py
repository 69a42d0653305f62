"""Two processes and shared memory without an engine: the minimum for the sort with these functions."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from harness import tera
from harness.settings import SHARED_MEMORY
from harness.work import Array


def split(task: tuple[str, str, Array]) -> list[int]:
    """Partition a file into a segment that is made once. Returns the ends of the parts."""
    segment, path, bounds = task
    parts = tera.partition(path, bounds)
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    shared = _segment(segment, ends[-1])
    for part, begin, end in zip(parts, ends, ends[1:], strict=False):
        shared[begin:end] = part
    return [int(end) for end in ends]


def gather(task: tuple[list[tuple[str, int, int, int]], str]) -> int:
    pieces, target = task
    return tera.merge([_segment(name, length)[begin:end] for name, length, begin, end in pieces], target)


def _segment(path: str, length: int) -> Array:
    size = length * tera.RECORD
    if not os.path.exists(path) or os.path.getsize(path) != size:
        with open(path, "wb") as file:
            file.truncate(size)
    return np.memmap(path, dtype=np.uint8, mode="r+", shape=(length, tera.RECORD))


class Sorter:
    def start(self, folder: Path) -> None:  # noqa: ARG002
        self._segments = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir=SHARED_MEMORY))
        self._pool = multiprocessing.get_context("forkserver").Pool(os.cpu_count())
        self._pool.map(abs, range(8), chunksize=1)

    def sort(self, files: list[str], target: Path) -> None:
        count = len(files)
        bounds = tera.bounds(self._pool.map(tera.sample, files, chunksize=1), count)
        segments = [str(self._segments / str(index)) for index in range(count)]
        ends = self._pool.map(split, [(segments[i], files[i], bounds) for i in range(count)], chunksize=1)
        work = [
            ([(segments[i], ends[i][-1], ends[i][r], ends[i][r + 1]) for i in range(count)], str(target / f"part-{r}"))
            for r in range(count)
        ]
        self._pool.map(gather, work, chunksize=1)

    def stop(self) -> None:
        self._pool.terminate()
        self._pool.join()
        del self._pool
        gc.collect()  # its semaphores stay in shared memory when this process ends without finalizers
        shutil.rmtree(self._segments, ignore_errors=True)
