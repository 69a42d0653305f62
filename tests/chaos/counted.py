"""User functions that log every start and end outside of the system, and take a while.

`TREADLE_TEST_LOG` cannot reach a worker, so the log's path travels in `with`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result

Records = NDArray[np.uint8]


def note(log: str, what: str, context: Context) -> None:
    """Write one atomic line: event, stage, partition, attempt, seconds since boot."""
    line = f"{what} {context.stage} {context.partition} {context.attempt} {time.monotonic():.6f}\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def slow(records: Records, log: str, seconds: float, context: Context) -> Records:
    """Returns the partition unchanged, after a while."""
    note(log, "start", context)
    time.sleep(seconds)
    note(log, "end", context)
    return records


def keys(records: Records) -> NDArray[np.bytes_]:
    return np.ascontiguousarray(records[:, :10]).view("S10")[:, 0]


def assign(
    points: NDArray[np.float64], centroids: NDArray[np.float64], log: str, seconds: float, context: Context
) -> Any:
    note(log, "start", context)
    time.sleep(seconds)
    nearest = ((points[:, None, :] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    k = len(centroids)
    sums = np.stack([np.bincount(nearest, points[:, j], minlength=k) for j in range(points.shape[1])], axis=1)
    note(log, "end", context)
    return sums, np.bincount(nearest, minlength=k)


def first(values: Any, k: int) -> NDArray[np.float64]:
    part: NDArray[np.float64] = next(iter(values.partitions()))
    return part[:k].copy()


def add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]


def move(total: Any, old: NDArray[np.float64]) -> Result:
    sums, counts = total
    moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], old)
    return Result(moved, metrics={"shift": float(np.abs(moved - old).max())})


def rows(centroids: NDArray[np.float64]) -> Iterator[str]:
    for row in centroids:
        yield " ".join(value.hex() for value in row.tolist())
