"""Dask distributed: a worker process of one thread for each processor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, wait
from harness import tera
from rivals.dask import cluster, pick
from sorters.dask import split as split_records

from workloads import data
from workloads.data import jobs
from workloads.rivals.base import Base
from workloads.settings import Workload


def scatter(index: int, count: int, parts: int) -> tuple[Any, ...]:
    return tuple(jobs.split(jobs.draw(index, count), parts))


def add_up(arrays: list[Any]) -> Any:
    return jobs.add_up(arrays)


class Rival(Base):
    def start(self) -> None:
        self._cluster = cluster(os.cpu_count() or 1, self.folder)
        self._client = Client(self._cluster)
        self._submit(jobs.same, 1).result()

    def stop(self) -> None:
        self._client.close()
        self._cluster.close()

    def prepare(self, workload: Workload) -> None:
        self._points: list[Any] = []
        if workload == "broadcast":
            self._array = data.array(self.sizes)
        if workload == "k_means":
            files = sorted(map(str, data.points(self.sizes).glob("points-*")))
            self._points = self._client.map(np.load, files, pure=False)
            wait(self._points)

    def _submit(self, function: Any, *arguments: Any) -> Any:
        return self._client.submit(function, *arguments, pure=False)

    def _apart(self, parts: list[Any], count: int) -> list[list[Any]]:
        """The share of each of `count` consumers in every producer's tuple."""
        return [[self._submit(pick, part, index) for part in parts] for index in range(count)]

    # -- workloads

    def fan_out(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self._client.gather(self._client.map(jobs.same, range(self.sizes.items), pure=False))

    def words(self, variant: str, target: Path) -> None:  # noqa: ARG002
        files = self.sizes.word_files
        parts = [self._submit(jobs.count_file, str(path), files) for path in data.text(self.sizes).glob("text-*")]
        picked = self._apart(parts, files)
        del parts
        self._client.gather(
            [self._submit(jobs.write_counts, some, f"{target}/part-{r}") for r, some in enumerate(picked)]
        )

    def sort(self, variant: str, target: Path) -> None:  # noqa: ARG002
        files = tera.files(data.records(self.sizes))
        samples = self._client.gather(self._client.map(tera.sample, files, pure=False))
        bounds = tera.bounds(samples, len(files))
        parts = [self._submit(split_records, path, bounds) for path in files]
        picked = self._apart(parts, len(files))
        del parts
        self._client.gather([self._submit(tera.merge, some, f"{target}/part-{r}") for r, some in enumerate(picked)])

    def broadcast(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        shared = self._client.scatter(self._array, broadcast=True, hash=False)
        return self._client.gather([self._submit(jobs.total, index, shared) for index in range(self.sizes.tasks)])

    def reduce(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        arrays = [self._submit(jobs.ramp, index, self.sizes.array) for index in range(self.sizes.tasks)]
        while len(arrays) > 1:  # in pairs, so that each sum releases its inputs
            arrays = [self._submit(add_up, arrays[first : first + 2]) for first in range(0, len(arrays), 2)]
        return self._submit(jobs.facts, arrays[0]).result()

    def shuffled(self, count: int) -> Any:
        tasks = self.sizes.tasks
        parts = [self._submit(scatter, index, count, tasks) for index in range(tasks)]
        picked = self._apart(parts, tasks)
        del parts
        return self._client.gather([self._submit(jobs.count_and_sum, some) for some in picked])

    def k_means(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        centroids = np.load(data.points(self.sizes) / "start.npy")
        for _ in range(self.sizes.iterations):
            partials = self._client.gather([self._submit(jobs.nearest, points, centroids) for points in self._points])
            centroids = jobs.moved(jobs.fold(partials), centroids)
        return centroids

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        width = self.sizes.width
        done = 0
        for _ in range(self.sizes.stages):
            done += len(self._client.gather([self._submit(jobs.same, index) for index in range(width)]))
        return done
