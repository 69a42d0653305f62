"""Ray: one node, a task for each item, arrays through its object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import ray
from harness import tera
from rivals.ray import begin
from sorters import ray as sorter

from workloads import data
from workloads.data import jobs
from workloads.rivals.base import Base
from workloads.settings import Workload

same, total, ramp, nearest = (ray.remote(one) for one in (jobs.same, jobs.total, jobs.ramp, jobs.nearest))


@ray.remote
def nothing(*_: Any) -> int:
    return 0


@ray.remote
def write(path: str, *parts: Any) -> int:
    return jobs.write_counts(parts, path)


@ray.remote
def facts(*arrays: Any) -> list[int]:
    return jobs.facts(jobs.add_up(arrays))


@ray.remote
def count_and_sum(*parts: Any) -> list[int]:
    return jobs.count_and_sum(parts)


@ray.remote
def load(path: str) -> Any:
    return np.load(path)


def scatter(index: int, count: int, parts: int) -> tuple[Any, ...]:
    return tuple(jobs.split(jobs.draw(index, count), parts))


class Rival(Base):
    def start(self) -> None:
        begin(self.folder)
        ray.get([same.remote(index) for index in range(8)])

    def stop(self) -> None:
        ray.shutdown()

    def prepare(self, workload: Workload) -> None:
        if workload == "broadcast":
            self._array = data.array(self.sizes)
        if workload == "k_means":
            self._points = [load.remote(str(path)) for path in sorted(data.points(self.sizes).glob("points-*"))]
            ray.wait(self._points, num_returns=len(self._points))

    # -- workloads

    def fan_out(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return ray.get([same.remote(item) for item in range(self.sizes.items)])

    def words(self, variant: str, target: Path) -> None:  # noqa: ARG002
        files = self.sizes.word_files
        count = ray.remote(num_returns=files)(jobs.count_file)
        parts = [count.remote(str(path), files) for path in sorted(data.text(self.sizes).glob("text-*"))]
        ray.get([write.remote(f"{target}/part-{r}", *[part[r] for part in parts]) for r in range(files)])

    def sort(self, variant: str, target: Path) -> None:  # noqa: ARG002
        files = tera.files(data.records(self.sizes))
        bounds = tera.bounds(ray.get([sorter.sample.remote(path) for path in files]), len(files))
        parts = [sorter.split.remote(path, bounds) for path in files]
        ray.get([sorter.merge.remote(f"{target}/part-{r}", *[part[r] for part in parts]) for r in range(len(files))])

    def broadcast(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        reference = ray.put(self._array)
        return ray.get([total.remote(index, reference) for index in range(self.sizes.tasks)])

    def reduce(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return ray.get(facts.remote(*[ramp.remote(index, self.sizes.array) for index in range(self.sizes.tasks)]))

    def shuffled(self, count: int) -> Any:
        tasks = range(self.sizes.tasks)
        split = ray.remote(num_returns=len(tasks))(scatter)
        parts = [split.remote(index, count, len(tasks)) for index in tasks]
        return ray.get([count_and_sum.remote(*[part[r] for part in parts]) for r in tasks])

    def k_means(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        centroids = np.load(data.points(self.sizes) / "start.npy")
        for _ in range(self.sizes.iterations):
            shared = ray.put(centroids)
            partials = ray.get([nearest.remote(points, shared) for points in self._points])
            centroids = jobs.moved(jobs.fold(partials), centroids)
        return centroids

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        done = 0
        for _ in range(self.sizes.stages):
            done += len(ray.get([nothing.remote() for _ in range(self.sizes.width)]))
        return done
