"""The functions of the harness's `tasks.py`, in the forms that stages call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tasks  # type: ignore[import-not-found]  # of the harness
from numpy.typing import NDArray


def word_parts(path: str, parts: int) -> Iterator[tuple[int, dict[str, int]]]:
    """(part, its counts) of a file."""
    yield from enumerate(tasks.wc_map_parts(path, parts))


def write_words(pairs: Iterator[tuple[int, dict[str, int]]], folder: str) -> int:
    found = list(pairs)
    path = os.path.join(folder, f"part-{found[0][0]}")
    return int(tasks.wc_reduce_write([counts for _, counts in found], path))


def sample(records: NDArray[np.uint8]) -> list[int]:
    """Keys of every n-th record, as one record of the stage."""
    found: list[int] = tasks.ts_key(records[:: max(1, len(records) // 2000)]).tolist()
    return found


def bounds(values: Iterator[list[int]], parts: int) -> list[int]:
    chosen: list[int] = tasks.ts_bounds([np.array(one, np.uint64) for one in values], parts).tolist()
    return chosen


def key(records: NDArray[np.uint8]) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = tasks.ts_key(records)
    return found


def write_records(records: NDArray[np.uint8], folder: str, context: Any) -> int:
    return int(tasks.ts_merge_write([records], os.path.join(folder, f"part-{context.partition:02d}")))


def total(index: int, array: NDArray[np.float64]) -> float:  # noqa: ARG001
    return float(tasks.arr_sum(array))


def make(indices: Iterator[int], length: int) -> NDArray[np.int64]:
    made: NDArray[np.int64] = tasks.w5_make(next(indices), length)
    return made


def add_and_check(values: Any) -> Any:
    return tasks.w5_check(tasks.w5_add(*values.partitions()))


def draw(indices: Iterator[int], length: int) -> NDArray[np.int64]:
    drawn: NDArray[np.int64] = tasks.w6_make(next(indices), length)
    return drawn


def remainder(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values % 8


def resident(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array(points)


def only(values: Any) -> NDArray[np.float64]:
    (points,) = values.partitions()
    return np.array(points)


def partial(points: NDArray[np.float64], c: NDArray[np.float64]) -> Any:
    return tasks.km_partial(points, c)


def update(values: Iterator[Any], c: NDArray[np.float64]) -> Any:
    return tasks.km_update(list(values), c)
