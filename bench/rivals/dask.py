"""Dask distributed: a worker process of one thread for each member, on this machine.

The client is seat 0 of a broadcast. A reduce's sum stays with the worker of seat 0. Barrier and round trip use an
actor, as Dask has no barrier. A round takes from the client's first call until its last answer.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, wait
from harness import work
from harness.gang import DEADLINE
from harness.meeting import Meeting
from harness.work import Array, Task

FAN_OUT = 2


def add(*arrays: Array) -> Array:
    result = np.add(arrays[0], arrays[1])
    for array in arrays[2:]:
        result += array
    return result


def advanced(value: Array) -> Array:
    return np.add(value, 1)


def split(value: Array, members: int) -> tuple[Array, ...]:
    return tuple(work.split(value, members))


def pick(parts: tuple[Array, ...], seat: int) -> Array:
    return parts[seat]


def merge(parts: list[Array]) -> Array:
    return np.concatenate(parts)


def passed(barrier: Any, key: str) -> tuple[float, float]:
    began = time.monotonic()
    barrier.wait(key).result(timeout=DEADLINE)
    return began, time.monotonic()


def ping(echo: Any, payload: bytes, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        echo.echo(payload).result(timeout=DEADLINE)
        seconds.append(time.perf_counter() - began)
    return seconds


def cluster(workers: int, folder: Path) -> LocalCluster:
    """Worker processes with one thread on loopback that keep all data in memory."""
    dask.config.set(
        {
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.pause": False,
            "distributed.admin.tick.limit": "60s",
            "distributed.comm.timeouts.connect": "60s",
            "temporary-directory": str(folder),
        }
    )
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        memory_limit=0,
        silence_logs=50,
    )


class Rival:
    def start(self, members: int, folder: Path) -> None:
        self._members, self._barriers = members, 0
        self._cluster = cluster(members, folder)
        self._client = Client(self._cluster)
        self._client.wait_for_workers(members, timeout=DEADLINE)
        self._workers = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
        self._meeting = self._at(members - 1, Meeting, members, actor=True).result(timeout=DEADLINE)

    def measure(self, task: Task) -> list[float]:
        if task.operation == "round trip":
            count = task.warm_up + task.rounds
            trips = self._at(0, ping, self._meeting, bytes(task.size), count)
            return list(trips.result(timeout=DEADLINE))[task.warm_up :]
        self._value = work.source(task, 0, 1) if task.operation == "broadcast" else np.empty(0)
        self._values: list[Any] = []
        if task.operation in ("reduce", "shuffle"):
            self._values = [self._at(seat, work.source, task, seat, self._members) for seat in range(self._members)]
            self._done(self._values)
        once = {"broadcast": self._broadcast, "reduce": self._reduce, "shuffle": self._shuffle, "barrier": self._wait}
        seconds = [once[task.operation](task, number) for number in range(task.warm_up + task.rounds)]
        return seconds[task.warm_up :]

    def _broadcast(self, task: Task, number: int) -> float:
        began = time.monotonic()
        future = self._client.scatter(self._value, broadcast=True, hash=False)
        others = [self._at(seat, work.total, future) for seat in range(1, self._members)]
        totals = [work.total(self._value), *self._client.gather(others)]
        took = time.monotonic() - began
        for read in totals:
            work.check_broadcast(task, number, read)
        work.advance(self._value)
        return took

    def _reduce(self, task: Task, number: int) -> float:
        began = time.monotonic()
        partials: dict[int, Any] = {}
        for seat in reversed(range(self._members)):
            first = FAN_OUT * seat + 1
            children = [partials.pop(child) for child in range(first, min(first + FAN_OUT, self._members))]
            partials[seat] = self._at(seat, add, self._values[seat], *children) if children else self._values[seat]
        self._done([partials[0]])
        took = time.monotonic() - began
        work.check_reduce(task, self._members, number, partials[0].result(timeout=DEADLINE))
        self._advance()
        return took

    def _shuffle(self, task: Task, number: int) -> float:
        began = time.monotonic()
        n = self._members
        parts = [self._at(seat, split, self._values[seat], n) for seat in range(n)]
        picks = [[self._at(source, pick, parts[source], seat) for source in range(n)] for seat in range(n)]
        merged = [self._at(seat, merge, picks[seat]) for seat in range(n)]
        self._done(merged)
        took = time.monotonic() - began
        received = [self._at(seat, work.shuffled, merged[seat], seat, n) for seat in range(n)]
        work.check_shuffle(task, n, number, self._client.gather(received))
        self._advance()
        return took

    def _wait(self, task: Task, number: int) -> float:  # noqa: ARG002
        self._barriers += 1
        waits = [self._at(seat, passed, self._meeting, str(self._barriers)) for seat in range(self._members)]
        passes = self._client.gather(waits)
        return float(max(ended for _, ended in passes) - max(began for began, _ in passes))

    def _advance(self) -> None:
        self._values = [self._at(seat, advanced, value) for seat, value in enumerate(self._values)]
        self._done(self._values)

    def _at(self, seat: int, function: Any, *arguments: Any, **options: Any) -> Any:
        return self._client.submit(function, *arguments, workers=[self._workers[seat]], pure=False, **options)

    def _done(self, futures: list[Any]) -> None:
        wait(futures, timeout=DEADLINE)
        for future in futures:
            if future.status != "finished":
                future.result(timeout=DEADLINE)

    def stop(self) -> None:
        self._client.close()
        self._cluster.close()
