"""Checks of answers. Not timed. They raise AssertionError."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from harness import tera

from workloads import data
from workloads.data import jobs
from workloads.settings import Sizes, Workload


def check(workload: Workload, sizes: Sizes, answer: Any, target: Path) -> None:
    """`target`: the folder for written files."""
    _CHECKS[workload](sizes, answer, target)


def _fan_out(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    assert sorted(answer) == list(range(sizes.items)), f"{len(answer)} items, or other ones"


def _words(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    found: dict[str, int] = {}
    for path in _files(target):
        for line in path.read_text().splitlines():
            word, count = line.split("\t")
            assert word not in found, f"{word} is there twice"
            found[word] = int(count)
    assert found == _expected(data.text(sizes)), f"wrong counts of {len(found)} words"


def _sort(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    tera.check(target, tera.expected(data.records(sizes)))


def _broadcast(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    assert list(answer) == [float(data.array(sizes).sum())] * sizes.tasks, answer


def _reduce(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    shares, length = sizes.tasks * (sizes.tasks + 1) // 2, sizes.array
    right = [shares * (length * (length - 1) // 2), shares * (length // 3), shares * (length - 1), length]
    assert list(answer) == right, (answer, right)


def _shuffle(count: int) -> Callable[[Sizes, Any, Path], None]:
    def check(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
        given = [[int(number) for number in part] for part in answer]
        assert given == _shuffled(sizes.tasks, count or sizes.shuffled), given

    return check


def _shuffle_large(sizes: Sizes, answer: Any, target: Path) -> None:
    _shuffle(sizes.shuffled_large)(sizes, answer, target)


def _k_means(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    difference = float(np.abs(np.asarray(answer) - np.load(data.points(sizes) / "end.npy")).max())
    assert difference < 1e-6, f"centroids differ by {difference:.1e}"


def _pipeline(sizes: Sizes, answer: Any, target: Path) -> None:  # noqa: ARG001
    assert answer == sizes.stages * sizes.width, answer


_CHECKS: dict[Workload, Callable[[Sizes, Any, Path], None]] = {
    "fan_out": _fan_out,
    "words": _words,
    "sort": _sort,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "shuffle": _shuffle(0),
    "shuffle_large": _shuffle_large,
    "k_means": _k_means,
    "pipeline": _pipeline,
}


def _files(target: Path) -> list[Path]:
    """Data files, without the engines' own files."""
    found = sorted(path for path in target.rglob("*") if path.is_file() and path.name[0] not in "._")
    assert found, "nothing was written"
    return found


@lru_cache
def _expected(folder: Path) -> Any:
    return data.expected(folder)


@lru_cache
def _shuffled(tasks: int, count: int) -> list[list[int]]:
    """The expected count and sum of each task."""
    counts, sums = np.zeros(tasks, np.int64), [0] * tasks
    for index in range(tasks):
        for target, part in enumerate(jobs.split(jobs.draw(index, count), tasks)):
            number, total = jobs.count_and_sum([part])
            counts[target] += number
            sums[target] = (sums[target] + total) % 2**64
    return [[int(number), total] for number, total in zip(counts, sums, strict=True)]
