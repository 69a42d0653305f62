"""Range targets of whole arrays at once, by converting the boundaries to the array's own domain."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from . import key_columns
from .key_columns import column_of, is_array
from .key_order import Rank, order, self_ordered
from .keys import Key, canonical
from .stable_sort import first_eight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .key_columns import Column, Fixed, KeyArray, Moments, Numbers


_FEW = 16
"""Maximum number of thresholds for which comparing all values with each beats searching for each value."""
_CHUNK = 1 << 16
"""Values compared at once: they and the results stay in the processor's cache."""


def range_targets(keys: Sequence[object] | KeyArray, boundaries: Sequence[Key]) -> list[int] | NDArray[np.integer]:
    """bisect_right(boundaries, key) of each key in the order of keys: a list, or an array (n,) for an array.

    `boundaries` are ascending (see `check_boundaries`); a key equal to a boundary goes right of it.
    """
    if not is_array(keys):
        return _list_targets(cast("Sequence[object]", keys), boundaries)
    column = column_of(cast("KeyArray", keys))
    if isinstance(column, key_columns.Structs):
        column = key_columns.Objects([canonical(key) for key in keys])
    return _column_targets(column, boundaries)


def _list_targets(keys: Sequence[Any], boundaries: Sequence[Any]) -> list[int]:
    if self_ordered([*keys, *boundaries]):
        return [bisect_right(boundaries, key) for key in keys]
    ordered = [order(boundary) for boundary in boundaries]
    return [bisect_right(ordered, order(key)) for key in keys]


def _column_targets(column: Column, boundaries: Sequence[Key]) -> NDArray[np.integer]:
    import numpy as np

    if isinstance(column, key_columns.Objects):
        return np.array(_list_targets(column.keys, boundaries), dtype=np.int64)
    targets = _value_targets(column, boundaries)
    if column.nulls is not None:
        targets[column.nulls] = _list_targets([None], boundaries)[0]
    return targets


def _value_targets(column: Column, boundaries: Sequence[Key]) -> NDArray[np.integer]:
    import numpy as np

    if isinstance(column, key_columns.Indexed):
        return _column_targets(column.values, boundaries)[column.indices]
    if isinstance(column, key_columns.Numbers):
        return _number_targets(column, boundaries)
    if isinstance(column, key_columns.Moments):
        return _moment_targets(column, boundaries)
    if isinstance(column, key_columns.Fixed) and _searchable(column, boundaries):
        return _fixed_targets(column, boundaries)
    return np.array(_list_targets(cast("Any", column).to_list(), boundaries), dtype=np.int64)


def _search(values: NDArray[Any], below: int, thresholds: NDArray[Any]) -> NDArray[np.integer]:
    import numpy as np

    if len(thresholds) <= _FEW and values.dtype.kind in "iuf" and not np.isnan(thresholds).any():
        return _compare(values, below, thresholds)
    return np.searchsorted(thresholds, values, side="right").astype(np.int64) + below


def _compare(values: NDArray[Any], below: int, thresholds: NDArray[Any]) -> NDArray[np.integer]:
    """The result of `_search`, by one vectorised comparison per threshold; NaN is less than no threshold."""
    import numpy as np

    most = below + len(thresholds)
    targets = np.full(len(values), most, np.min_scalar_type(most))
    for start in range(0, len(values), _CHUNK):
        chunk, found = values[start : start + _CHUNK], targets[start : start + _CHUNK]
        for threshold in thresholds:
            found -= chunk < threshold
    return targets


def _search_bytes(values: NDArray[Any], below: int, thresholds: NDArray[Any]) -> NDArray[np.integer]:
    """The result of `_search`: by the first eight bytes as a number, and by all bytes where a threshold has the same.

    Thresholds that share their first eight bytes are searched for at once: most values would have the same.
    """
    import numpy as np

    heads = first_eight(thresholds)
    if (heads[1:] == heads[:-1]).any():
        return _search(values, below, thresholds)
    numbers = first_eight(values)
    targets = _search(numbers, below, heads)
    tied = np.flatnonzero(numbers == heads.take(targets.astype(np.intp) - below - 1, mode="clip"))
    targets[tied] = np.searchsorted(thresholds, values[tied], side="right") + below
    return targets


def _number_targets(column: Numbers, boundaries: Sequence[Key]) -> NDArray[np.integer]:
    import numpy as np

    dtype = column.values.dtype
    real = dtype.kind == "f"
    info: Any = np.iinfo(np.int64 if real else dtype)
    low, high = (-math.inf, math.inf) if real else (int(info.min), int(info.max))
    below, thresholds = 0, []
    for boundary in map(canonical, boundaries):
        rank = order(boundary)[0]
        least = _least(boundary, real) if rank in (Rank.NUMBER, Rank.NAN) else None
        if rank < Rank.NUMBER or (least is not None and least < low):
            below += 1
        elif least is not None and not least > high:
            thresholds.append(least)
    return _search(column.values, below, np.array(thresholds, dtype=dtype))


def _least(boundary: Any, real: bool) -> int | float:
    """The least number of the domain (doubles or integers) that does not sort before the boundary, exactly."""
    if real:
        return _double_at_least(boundary)
    if boundary != boundary:
        return math.inf
    return math.ceil(boundary) if isinstance(boundary, int) or math.isfinite(boundary) else float(boundary)


def _double_at_least(boundary: int | float) -> float:
    try:
        nearest = float(boundary)
    except OverflowError:
        return math.inf if boundary > 0 else -math.nextafter(math.inf, 0.0)
    return math.nextafter(nearest, math.inf) if nearest < boundary else nearest


def _moment_targets(column: Moments, boundaries: Sequence[Key]) -> NDArray[np.integer]:
    import numpy as np

    rank = {"date": Rank.DATE, "naive": Rank.NAIVE, "aware": Rank.AWARE}[column.clock]
    ordered = [order(boundary) for boundary in boundaries]
    below = sum(entry[0] < rank for entry in ordered)
    within = [entry[1] for entry in ordered if entry[0] == rank]
    if column.clock == "date":
        within = [day.toordinal() - key_columns.EPOCH_DAY for day in within]
    return _search(column.values, below, np.array(within, dtype=np.int64))


def _fixed_rank(column: Fixed) -> Rank:
    return Rank.STR if column.values.dtype.kind == "U" else Rank.BYTES


def _searchable(column: Fixed, boundaries: Sequence[Key]) -> bool:
    """Return whether NumPy, which ignores NULs at the end, compares these boundaries as Python does."""
    rank, kind = _fixed_rank(column), column.values.dtype.kind
    own = [entry[1] for entry in map(order, boundaries) if entry[0] == rank]
    if kind == "V":
        return all(len(text) == column.values.dtype.itemsize for text in own)
    return not any(text[-1:] in ("\0", b"\0") for text in own)


def _fixed_targets(column: Fixed, boundaries: Sequence[Key]) -> NDArray[np.integer]:
    import numpy as np

    rank = _fixed_rank(column)
    ordered = [order(boundary) for boundary in boundaries]
    below = sum(entry[0] < rank for entry in ordered)
    within = [entry[1] for entry in ordered if entry[0] == rank]
    thresholds = np.array(within, dtype="U" if rank == Rank.STR else "S")
    search = _search if rank == Rank.STR or not within else _search_bytes
    return search(column.comparable(), below, thresholds)
