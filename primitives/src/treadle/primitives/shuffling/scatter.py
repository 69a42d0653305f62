"""Rows of a table or an array to their targets, in their order: a stable sort by target, of chunks that fit the cache.

A sort of everything at once fetches each row from far memory (a partition as large as memory is fast; Manegold, Boncz
and Kersten, "Optimizing main-memory join on modern hardware", 2002, cut such passes up likewise).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..encoding.references import Kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FEW = 4
"""Maximum number of targets for which one pass over an array per target is faster than a sort."""
_CHUNK_BYTES = 1 << 19
"""Rows of an array that are sorted at once: they stay in the processor's cache."""
_TABLE_BYTES = 1 << 21
"""The same for a table, where each chunk and target costs a few calls for each column."""
_LEAST = 64
"""Minimum average of rows that a target gets from a chunk: each such run is copied by a call of its own."""


def scatter_rows(kind: Kind, value: Any, targets: Sequence[int] | NDArray[np.integer], partitions: int) -> list[Any]:
    """The rows of each target, as new tables or arrays. `targets`: one of range(partitions) for each row."""
    import numpy as np

    targets = np.asarray(targets, np.min_scalar_type(max(0, partitions - 1)))  # NumPy sorts short integers by radix
    if kind == "table":
        return _scatter_table(value, targets, partitions)
    if partitions <= _FEW:
        return [value.compress(targets == target, axis=0) for target in range(partitions)]
    gathered, ends = _scatter_array(value, targets, partitions)
    return [gathered[start:stop] for start, stop in pairwise([0, *ends])]


def _scatter_table(table: Any, targets: NDArray[Any], partitions: int) -> list[Any]:
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    runs: list[list[Any]] = [[] for _ in range(partitions)]
    row = max(1, table.nbytes // max(1, len(table)))
    step = max(_TABLE_BYTES // row, _LEAST * partitions)
    for start in range(0, len(table), step):
        chunk = targets[start : start + step]
        order = compute.array_sort_indices(pa.array(chunk))  # it counts; NumPy only for targets below 256
        ordered = table.slice(start, step).take(order).combine_chunks()
        ends = np.bincount(chunk, minlength=partitions).cumsum().tolist()
        for run, (first, last) in zip(runs, pairwise([0, *ends]), strict=True):
            if first < last:
                run.append(ordered.slice(first, last - first))
    return [_joined(run) if run else table.slice(0, 0) for run in runs]


def _joined(run: list[Any]) -> Any:
    import pyarrow as pa

    return run[0] if len(run) == 1 else pa.concat_tables(run).combine_chunks()


def _scatter_array(array: Any, targets: NDArray[Any], partitions: int) -> tuple[Any, list[int]]:
    """(the rows in the order of their targets, where each target ends)."""
    import numpy as np

    step = max(_CHUNK_BYTES // max(1, array[:1].nbytes), _LEAST * partitions)
    chunks = [slice(start, start + step) for start in range(0, max(1, len(array)), step)]
    counts = np.stack([np.bincount(targets[chunk], minlength=partitions) for chunk in chunks])
    totals = counts.sum(axis=0)
    ends = totals.cumsum()
    if len(chunks) == 1:
        return array.take(np.argsort(targets, kind="stable"), axis=0), ends.tolist()
    stops = ends - totals + counts.cumsum(axis=0)
    gathered = np.empty_like(array)
    for index, chunk in enumerate(chunks):
        ordered, taken = array[chunk].take(np.argsort(targets[chunk], kind="stable"), axis=0), 0
        for stop, count in zip(stops[index].tolist(), counts[index].tolist(), strict=True):
            gathered[stop - count : stop] = ordered[taken : taken + count]
            taken += count
    return gathered, ends.tolist()
