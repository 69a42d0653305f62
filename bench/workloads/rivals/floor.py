"""No engine: a pool of processes, and files in shared memory that are made once and kept."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from harness import tera
from harness.settings import SHARED_MEMORY
from sorters import floor as sorter

from workloads import data
from workloads.data import jobs
from workloads.rivals.base import Base
from workloads.settings import EACH, RECORDS, Workload

_BLOCK = 1 << 16
"""Elements added at a time, so that the sum stays in the cache."""
_open: dict[tuple[str, str], Any] = {}
_resident: dict[str, jobs.Floats] = {}


def mapped(path: str, dtype: str, count: int) -> Any:
    """A shared array, made on first use and kept open."""
    if (path, dtype) not in _open:
        with open(path, "ab") as file:
            file.truncate(count * np.dtype(dtype).itemsize)
        _open[path, dtype] = np.memmap(path, dtype, mode="r+", shape=(count,))
    return _open[path, dtype]


def read_total(task: tuple[str, int]) -> float:
    return jobs.total(0, mapped(task[0], "f8", task[1]))


def make_ramp(task: tuple[str, int, int]) -> None:
    path, index, length = task
    np.multiply(np.arange(length, dtype=np.int64), index + 1, out=mapped(path, "i8", length))


def add_slice(task: tuple[list[str], str, int, int, int]) -> None:
    sources, target, length, start, stop = task
    summed, arrays = mapped(target, "i8", length), [mapped(path, "i8", length) for path in sources]
    for begin in range(start, stop, _BLOCK):
        block = slice(begin, min(begin + _BLOCK, stop))
        np.add(arrays[0][block], arrays[1][block], out=summed[block])
        for array in arrays[2:]:
            summed[block] += array[block]


def scatter(task: tuple[str, int, int, int]) -> list[int]:
    """The integers of a producer, by target. Returns the ends of the parts."""
    path, index, count, parts = task
    ends, shared = [0], mapped(path, "i8", count)
    for part in jobs.split(jobs.draw(index, count), parts):
        shared[ends[-1] : ends[-1] + len(part)] = part
        ends.append(ends[-1] + len(part))
    return ends


def gather(task: tuple[list[tuple[str, int, int]], int]) -> list[int]:
    pieces, count = task
    return jobs.count_and_sum(mapped(path, "i8", count)[begin:end] for path, begin, end in pieces)


def sums(task: tuple[str, jobs.Floats]) -> jobs.Partial:
    path, centroids = task
    if path not in _resident:
        _resident[path] = np.load(path)
    return jobs.nearest(_resident[path], centroids)


def write(task: tuple[list[dict[str, int]], str]) -> int:
    return jobs.write_counts(*task)


class Rival(Base):
    def start(self) -> None:
        self._shared = Path(tempfile.mkdtemp(prefix="treadle-workloads-", dir=SHARED_MEMORY))
        self._cores = os.cpu_count() or 1
        self._pool = multiprocessing.get_context("forkserver").Pool(self._cores)
        self._map(abs, range(8))

    def stop(self) -> None:
        self._pool.terminate()
        self._pool.join()
        del self._pool
        gc.collect()  # its semaphores stay in shared memory when this process ends without finalizers
        shutil.rmtree(self._shared, ignore_errors=True)

    def _map(self, function: Any, tasks: Any) -> list[Any]:
        return self._pool.map(function, tasks, chunksize=1)

    def _paths(self, name: str, count: int) -> list[str]:
        return [str(self._shared / f"{name}-{index}") for index in range(count)]

    def prepare(self, workload: Workload) -> None:
        _open.clear()
        if workload == "broadcast":
            self._array = data.array(self.sizes)
        if workload == "k_means":
            self._points = sorted(map(str, data.points(self.sizes).glob("points-*")))

    # -- workloads

    def fan_out(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self._pool.map(jobs.same, range(self.sizes.items), chunksize=1 if variant == EACH else None)

    def words(self, variant: str, target: Path) -> None:
        count = partial(jobs.count_lines if variant == RECORDS else jobs.count_file, files=self.sizes.word_files)
        parts = self._map(count, sorted(map(str, data.text(self.sizes).glob("text-*"))))
        targets = range(self.sizes.word_files)
        self._map(write, [([part[index] for part in parts], f"{target}/part-{index}") for index in targets])

    def sort(self, variant: str, target: Path) -> None:  # noqa: ARG002
        files = tera.files(data.records(self.sizes))
        parts = range(len(files))
        bounds = tera.bounds(self._map(tera.sample, files), len(files))
        shared = self._paths("sort", len(files))
        ends = self._map(sorter.split, [(path, file, bounds) for path, file in zip(shared, files, strict=True)])
        pieces = [[(shared[i], ends[i][-1], ends[i][r], ends[i][r + 1]) for i in parts] for r in parts]
        self._map(sorter.gather, [(pieces[r], f"{target}/part-{r}") for r in parts])

    def broadcast(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        (path,) = self._paths("array", 1)
        np.copyto(mapped(path, "f8", self.sizes.array), self._array)
        return self._map(read_total, [(path, self.sizes.array)] * self.sizes.tasks)

    def reduce(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        length = self.sizes.array
        *sources, summed = self._paths("sum", self.sizes.tasks + 1)
        self._map(make_ramp, [(path, index, length) for index, path in enumerate(sources)])
        cuts = [length * part // self._cores for part in range(self._cores + 1)]
        self._map(add_slice, [(sources, summed, length, *cut) for cut in pairwise(cuts)])
        return jobs.facts(mapped(summed, "i8", length))

    def shuffled(self, count: int) -> Any:
        tasks = self.sizes.tasks
        paths = self._paths(f"shuffle-{count}", tasks)
        ends = self._map(scatter, [(path, index, count, tasks) for index, path in enumerate(paths)])
        pieces = [[(paths[i], ends[i][r], ends[i][r + 1]) for i in range(tasks)] for r in range(tasks)]
        return self._map(gather, [(piece, count) for piece in pieces])

    def k_means(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        centroids = np.load(data.points(self.sizes) / "start.npy")
        for _ in range(self.sizes.iterations):
            partials = self._map(sums, [(path, centroids) for path in self._points])
            centroids = jobs.moved(jobs.fold(partials), centroids)
        return centroids

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return sum(len(self._map(jobs.same, range(self.sizes.width))) for _ in range(self.sizes.stages))
