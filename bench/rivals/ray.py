"""Ray: one node with all CPUs of the machine. Members are actors, and arrays go through its object store.

The driver is seat 0 of a broadcast, and holds a reduce's sum. The barrier is an asynchronous actor on which all wait. A
round takes from the driver's first call until its last answer.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_DEDUP_LOGS="0")
import numpy as np
import ray
from harness import work
from harness.gang import DEADLINE
from harness.meeting import Meeting
from harness.work import Array, Task

FAN_OUT = 2


@ray.remote(num_cpus=0)
class Member:
    def __init__(self, seat: int, members: int) -> None:
        self._seat, self._members = seat, members

    def make(self, task: Task) -> None:
        self._value = work.source(task, self._seat, self._members)

    def advance(self) -> None:
        work.advance(self._value)

    def total(self, value: Array) -> float:
        return work.total(value)

    def partial(self, *children: Array) -> Array:
        if not children:
            return self._value
        result = np.add(self._value, children[0])
        for child in children[1:]:
            result += child
        return result

    def split(self) -> Any:
        parts = work.split(self._value, self._members)
        return tuple(parts) if len(parts) > 1 else parts[0]

    def merge(self, *parts: Array) -> None:
        self._received = np.concatenate(parts)

    def shuffled(self) -> tuple[int, int]:
        return work.shuffled(self._received, self._seat, self._members)

    def wait(self, barrier: Any, key: str) -> tuple[float, float]:
        began = time.monotonic()
        ray.get(barrier.wait.remote(key), timeout=DEADLINE)
        return began, time.monotonic()

    def echo(self, payload: bytes) -> bytes:
        return payload

    def ping(self, other: Any, payload: bytes, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            ray.get(other.echo.remote(payload))
            seconds.append(time.perf_counter() - began)
        return seconds


Barrier = ray.remote(num_cpus=0)(Meeting)


class Rival:
    def start(self, members: int, folder: Path) -> None:
        begin(folder)
        self._members, self._barriers = members, 0
        self._actors = [Member.remote(seat, members) for seat in range(members)]
        self._barrier = Barrier.options(max_concurrency=members + 1).remote(members)
        self._get([actor.echo.remote(b"") for actor in self._actors])

    def measure(self, task: Task) -> list[float]:
        if task.operation == "round trip":
            first, second = self._actors[:2]
            payload = bytes(task.size)
            return list(self._get(first.ping.remote(second, payload, task.warm_up + task.rounds)))[task.warm_up :]
        self._value = work.source(task, 0, 1) if task.operation == "broadcast" else np.empty(0)
        if task.operation in ("reduce", "shuffle"):
            self._get([actor.make.remote(task) for actor in self._actors])
        once = {"broadcast": self._broadcast, "reduce": self._reduce, "shuffle": self._shuffle, "barrier": self._wait}
        seconds = [once[task.operation](task, number) for number in range(task.warm_up + task.rounds)]
        return seconds[task.warm_up :]

    def _broadcast(self, task: Task, number: int) -> float:
        began = time.monotonic()
        reference = ray.put(self._value)
        others = [actor.total.remote(reference) for actor in self._actors[1:]]
        totals = [work.total(self._value), *self._get(others)]
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
            partials[seat] = self._actors[seat].partial.remote(*children)
        result = self._get(partials[0])
        took = time.monotonic() - began
        work.check_reduce(task, self._members, number, result)
        self._advance()
        return took

    def _shuffle(self, task: Task, number: int) -> float:
        began = time.monotonic()
        n = self._members
        parts = [actor.split.options(num_returns=n).remote() for actor in self._actors]
        self._get([actor.merge.remote(*[part[seat] for part in parts]) for seat, actor in enumerate(self._actors)])
        took = time.monotonic() - began
        work.check_shuffle(task, n, number, self._get([actor.shuffled.remote() for actor in self._actors]))
        self._advance()
        return took

    def _wait(self, task: Task, number: int) -> float:  # noqa: ARG002
        self._barriers += 1
        waits = self._get([actor.wait.remote(self._barrier, str(self._barriers)) for actor in self._actors])
        return max(ended for _, ended in waits) - max(began for began, _ in waits)

    def _advance(self) -> None:
        self._get([actor.advance.remote() for actor in self._actors])

    def _get(self, references: Any) -> Any:
        return ray.get(references, timeout=DEADLINE)

    def stop(self) -> None:
        ray.shutdown()


def begin(folder: Path) -> None:
    """A node of this machine on loopback, with its files in `folder`."""
    ray.init(
        address="local",
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder),
        object_store_memory=_object_store_bytes(),
    )


def _object_store_bytes() -> int:
    """Half of shared memory, and at most a third of the machine's memory."""
    shared = os.statvfs("/dev/shm")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(shared.f_bavail * shared.f_frsize // 2, memory // 3)
