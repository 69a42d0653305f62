"""Lithops on this machine: version 1 of its localhost handler, which keeps its processes, and files as storage."""

from __future__ import annotations

import os
import pickle
import sys
import uuid
from pathlib import Path
from typing import Any

import lithops  # type: ignore[import-not-found]  # in an environment of its own
import numpy as np

from workloads import data
from workloads.data import jobs
from workloads.rivals.base import Base
from workloads.settings import Workload


def put_counts(path: str, files: int, prefix: str, index: int, storage: Any) -> None:
    """Lithops passes its client to a parameter named `storage`."""
    for part, counts in enumerate(jobs.count_file(path, files)):
        storage.put_object(storage.bucket, f"{prefix}/{part}/{index}", pickle.dumps(counts, 5))


def write_counts(prefix: str, part: int, count: int, path: str, storage: Any) -> int:
    stored = (storage.get_object(storage.bucket, f"{prefix}/{part}/{index}") for index in range(count))
    return jobs.write_counts(map(pickle.loads, stored), path)


def total(index: int, key: str, storage: Any) -> float:
    return jobs.total(index, np.frombuffer(storage.get_object(storage.bucket, key)))


def put_parts(index: int, count: int, parts: int, prefix: str, storage: Any) -> None:
    for part, integers in enumerate(jobs.split(jobs.draw(index, count), parts)):
        storage.put_object(storage.bucket, f"{prefix}/{part}/{index}", integers.tobytes())


def count_and_sum(part: int, parts: int, prefix: str, storage: Any) -> list[int]:
    keys = [f"{prefix}/{part}/{index}" for index in range(parts)]
    return jobs.count_and_sum(np.frombuffer(storage.get_object(storage.bucket, key), np.int64) for key in keys)


class Rival(Base):
    def start(self) -> None:
        self._executor = lithops.FunctionExecutor(
            config={
                "lithops": {"backend": "localhost", "storage": "localhost", "log_level": "ERROR"},
                "localhost": {"worker_processes": os.cpu_count(), "runtime": sys.executable, "version": 1},
            }
        )
        self._prefix = ""
        self._map(jobs.same, range(4))

    def stop(self) -> None:
        self._executor.__exit__(None, None, None)

    def prepare(self, workload: Workload) -> None:
        if workload == "broadcast":
            self._array = data.array(self.sizes)

    def after(self) -> None:
        storage = self._executor.storage
        if self._prefix:
            storage.delete_objects(storage.bucket, storage.list_keys(storage.bucket, self._prefix))
        self._prefix = ""
        self._executor.clean()

    def _map(self, function: Any, tasks: Any) -> list[Any]:
        found: list[Any] = self._executor.get_result(self._executor.map(function, list(tasks)))
        return found

    def _begin(self) -> str:
        self._prefix = f"workloads/{uuid.uuid4().hex}"
        return self._prefix

    # -- workloads

    def words(self, variant: str, target: Path) -> None:  # noqa: ARG002
        prefix, files = self._begin(), self.sizes.word_files
        texts = sorted(map(str, data.text(self.sizes).glob("text-*")))
        self._map(put_counts, [(path, files, prefix, index) for index, path in enumerate(texts)])
        self._map(write_counts, [(prefix, part, len(texts), f"{target}/part-{part}") for part in range(files)])

    def broadcast(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        key, storage = f"{self._begin()}/array", self._executor.storage
        storage.put_object(storage.bucket, key, self._array.tobytes())
        return self._map(total, [(index, key) for index in range(self.sizes.tasks)])

    def shuffled(self, count: int) -> Any:
        prefix, tasks = self._begin(), self.sizes.tasks
        self._map(put_parts, [(index, count, tasks, prefix) for index in range(tasks)])
        return self._map(count_and_sum, [(part, tasks, prefix) for part in range(tasks)])

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        width = self.sizes.width
        return sum(len(self._map(jobs.same, range(width))) for _ in range(self.sizes.stages))
