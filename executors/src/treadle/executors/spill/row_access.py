"""Operations on rows that partitions of every kind share, and operations on columns of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.primitives.encoding.references import Kind
from treadle.primitives.shuffling.key_columns import is_array
from treadle.primitives.shuffling.partitioning import rows_between


def take(kind: Kind, value: Any, positions: Any) -> Any:
    """The records at the positions, in that order."""
    if kind == "objects":
        return [value[index] for index in positions]
    rows = _integers(positions)
    return value.take(rows, axis=0) if kind == "array" else value.take(rows)


def compact(kind: Kind, value: Any, start: int, stop: int) -> Any:
    """Like `rows_between`, without references to other rows: a view of an Arrow table pickles the whole underlying
    table."""
    return take(kind, value, range(start, stop)) if kind == "table" else rows_between(kind, value, start, stop)


def compact_keys(keys: Any, start: int, stop: int) -> Any:
    """The keys from `start` to before `stop`, without references to other keys."""
    return keys[start:stop] if not is_array(keys) or hasattr(keys, "dtype") else take_keys(keys, range(start, stop))


def take_keys(keys: Any, positions: Any) -> Any:
    """The keys at the positions, as a list or an array like `keys`."""
    if not is_array(keys):
        return [keys[index] for index in positions]
    return keys.take(_integers(positions), **({"axis": 0} if hasattr(keys, "dtype") else {}))


def join_keys(columns: Sequence[Any]) -> Any:
    """Join keys of several pieces: an array if all are arrays of one type, otherwise a list."""
    first = columns[0]
    if len(columns) == 1:
        return first
    if not is_array(first):
        return [key for column in columns for key in column]
    if hasattr(first, "dtype"):
        import numpy as np

        same = all(getattr(column, "dtype", None) == first.dtype for column in columns)
        return np.concatenate(columns) if same else [key for column in columns for key in column]
    import pyarrow as pa

    if any(getattr(column, "type", None) != first.type for column in columns):
        return [key for column in columns for key in column]
    chunks = (column.chunks if isinstance(column, pa.ChunkedArray) else [column] for column in columns)
    return pa.concat_arrays([chunk for some in chunks for chunk in some])


def _integers(positions: Any) -> Any:
    import numpy as np

    return np.asarray(positions, dtype=np.int64)  # the dtype of an empty list is unknown
