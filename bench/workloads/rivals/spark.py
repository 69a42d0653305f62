"""Spark: `local[*]`, resilient distributed datasets with the shared functions."""

from __future__ import annotations

import operator
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
import numpy as np
from pyspark.sql import SparkSession  # type: ignore[import-not-found]  # in an environment of its own

from workloads import data
from workloads.data import jobs
from workloads.rivals.base import Base
from workloads.settings import Workload


def count_file(path: str) -> Any:
    with open(path) as file:
        return jobs.count_words(file.read())


def line(pair: tuple[str, int]) -> str:
    return f"{pair[0]}\t{pair[1]}"


class Rival(Base):
    def start(self) -> None:
        settings = {
            "spark.driver.memory": "6g",
            "spark.driver.maxResultSize": "4g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(self.folder),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.rdd.compress": "false",
        }
        builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").appName("workloads")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()
        self._context = self._session.sparkContext
        self._context.setLogLevel("OFF")
        self._each(range(4)).map(jobs.same).collect()

    def stop(self) -> None:
        self._session.stop()

    def prepare(self, workload: Workload) -> None:
        if workload == "broadcast":
            self._array = data.array(self.sizes)
        if workload == "k_means":
            files = sorted(map(str, data.points(self.sizes).glob("points-*")))
            self._points = self._each(files).map(np.load).cache()
            self._points.count()

    def _each(self, items: Any) -> Any:
        """A partition for each item."""
        return self._context.parallelize(items, len(items))

    # -- workloads

    def words(self, variant: str, target: Path) -> None:  # noqa: ARG002
        files = sorted(map(str, data.text(self.sizes).glob("text-*")))
        counts = self._each(files).flatMap(count_file).reduceByKey(operator.add, self.sizes.word_files)
        counts.map(line).saveAsTextFile(str(target / "counts"))

    def broadcast(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        shared = self._context.broadcast(self._array)
        try:
            return self._each(range(self.sizes.tasks)).map(lambda index: jobs.total(index, shared.value)).collect()
        finally:
            shared.unpersist()

    def shuffled(self, count: int) -> Any:
        tasks = self.sizes.tasks
        parts = self._each(range(tasks)).flatMap(lambda index: enumerate(jobs.split(jobs.draw(index, count), tasks)))
        together = parts.partitionBy(tasks, jobs.same)
        return together.mapPartitions(lambda pairs: [jobs.count_and_sum(part for _, part in pairs)]).collect()

    def k_means(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        centroids = np.load(data.points(self.sizes) / "start.npy")
        for _ in range(self.sizes.iterations):
            partials = self._points.map(lambda points, old=centroids: jobs.nearest(points, old)).collect()
            centroids = jobs.moved(jobs.fold(partials), centroids)
        return centroids

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        width = self.sizes.width
        return sum(len(self._each(range(width)).map(jobs.same).collect()) for _ in range(self.sizes.stages))
