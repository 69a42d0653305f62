"""The user's functions of the workloads: the same plain Python and NumPy for all rivals.

Only the measuring modules import treadle; this one does not.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Partial = tuple[Floats, Integers]


def same(item: Any) -> Any:
    return item


def add(a: Any, b: Any) -> Any:
    return a + b


# -- words ----------


def count_words(text: str) -> Iterable[tuple[str, int]]:
    """(word, count) of each word in a file."""
    return list(Counter(text.split()).items())


def tokenize(line: str) -> Iterator[tuple[str, int]]:
    """(word, 1) of a line."""
    for word in line.split():
        yield word, 1


def count_file(path: str, files: int) -> list[dict[str, int]]:
    """The counts of a file, grouped by the output file of each word."""
    with open(path) as file:
        return scattered(count_words(file.read()), files)


def count_lines(path: str, files: int) -> list[dict[str, int]]:
    """The same result from a plain loop over `tokenize` and `add`, a record at a time."""
    counts: dict[str, int] = {}
    with open(path) as file:
        for line in file:
            for word, one in tokenize(line):
                counts[word] = add(counts[word], one) if word in counts else one
    return scattered(counts.items(), files)


def scattered(counts: Iterable[tuple[str, int]], files: int) -> list[dict[str, int]]:
    parts: list[dict[str, int]] = [{} for _ in range(files)]
    for word, count in counts:
        parts[crc32(word.encode()) % files][word] = count
    return parts


def write_counts(parts: Iterable[dict[str, int]], path: str) -> int:
    """Write the sum of the parts as `word<TAB>count` lines."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    with open(path, "w") as file:
        file.writelines(f"{word}\t{count}\n" for word, count in total.items())
    return len(total)


def polars_words(lines: Any) -> Any:
    """The words of an Arrow table of lines and their counts, as a table made by Polars."""
    import polars

    words = polars.LazyFrame(lines).select(polars.col("line").str.split(" ").explode().alias("word"))
    counts = words.group_by("word").agg(polars.len().cast(polars.Int64).alias("count"))
    return counts.filter(polars.col("word") != "").collect().to_arrow(compat_level=polars.CompatLevel.oldest())


def polars_sum(counts: Any) -> Any:
    import polars

    table = polars.DataFrame(counts).group_by("word").agg(polars.col("count").sum())
    return table.to_arrow(compat_level=polars.CompatLevel.oldest())


def duckdb_words(lines: Any) -> Any:
    """The same result by DuckDB."""
    words = "select unnest(string_split(line, ' ')) as word from given"
    return duckdb_query(f"select word, count(*) as count from ({words}) where word <> '' group by word", lines)


def duckdb_sum(counts: Any) -> Any:
    return duckdb_query("select word, sum(count)::bigint as count from given group by word", counts)


def duckdb_query(query: str, given: Any) -> Any:
    """The result of a query on one table."""
    with duckdb_database().cursor() as connection:
        connection.register("given", given)
        return connection.sql(query).to_arrow_table()


@functools.cache
def duckdb_database() -> Any:
    """One for each process, since opening one takes as long as reading five megabytes."""
    import duckdb

    return duckdb.connect(config={"threads": 1})


# -- arrays ----------


def total(index: int, array: Floats) -> float:  # noqa: ARG001
    """The work of a broadcast's reader: it reads the whole array."""
    return float(array.sum())


def ramp(index: int, length: int) -> Integers:
    return np.arange(length, dtype=np.int64) * (index + 1)


def add_up(arrays: Iterable[Integers]) -> Integers:
    """Element-wise sum, in one array."""
    first, second, *rest = arrays
    summed: Integers = first + second
    for array in rest:
        summed += array
    return summed


def facts(array: Integers) -> list[int]:
    """The features by which a sum is recognised: total, an element in the middle, the last one, the length."""
    return [int(array.sum()), int(array[len(array) // 3]), int(array[-1]), len(array)]


def draw(index: int, count: int) -> Integers:
    return np.random.default_rng([1789, index]).integers(0, 2**62, count)


def split(array: Integers, parts: int) -> list[Integers]:
    """One array for each remainder."""
    targets = (array % parts).astype(np.int8)
    order = np.argsort(targets, kind="stable")
    return np.split(array[order], np.searchsorted(targets[order], np.arange(1, parts)))


def count_and_sum(parts: Iterable[Integers]) -> list[int]:
    """(their number, their sum modulo 2**64)."""
    known = list(parts)
    return [sum(map(len, known)), sum(int(part.sum(dtype=np.uint64)) for part in known) % 2**64]


# -- k-means ----------


def nearest(points: Floats, centroids: Floats) -> Partial:
    """Sums and numbers of the points nearest to each centroid (Lloyd 1982)."""
    distances = points @ (-2.0 * centroids.T)  # without |point|^2, the same for every centroid
    distances += (centroids**2).sum(axis=1)
    found = distances.argmin(axis=1)
    k, dimensions = centroids.shape
    sums: Any = np.stack([np.bincount(found, points[:, j], minlength=k) for j in range(dimensions)], axis=1)
    return sums, np.bincount(found, minlength=k)


def add_partials(a: Partial, b: Partial) -> Partial:
    return a[0] + b[0], a[1] + b[1]


def moved(partial: Partial, old: Floats) -> Floats:
    """The means. A centroid without points stays."""
    sums, counts = partial
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], old)


def fold(partials: Iterable[Partial]) -> Partial:
    first, *rest = partials
    for partial in rest:
        first = add_partials(first, partial)
    return first


# -- as stages of a workflow ----------


def ramp_stage(values: Iterator[int], length: int) -> Integers:
    """`per: partition` of one index."""
    return ramp(next(values), length)


def facts_stage(values: Any) -> list[int]:
    """`per: all` of arrays."""
    return facts(add_up(values.partitions()))


def draw_stage(values: Iterator[int], count: int) -> Integers:
    return draw(next(values), count)


def remainder(values: Integers) -> Integers:
    """The task (one of eight) of each integer, as a vectorised key."""
    return values % 8


def count_and_sum_stage(values: Integers) -> list[int]:
    return count_and_sum([values])


def resident(points: Floats) -> Floats:
    """The points of a file, in memory."""
    return np.array(points)


def only(values: Any) -> Floats:
    """The single partition of a file."""
    (points,) = values.partitions()
    return np.array(points)
