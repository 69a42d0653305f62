"""The one sort order of keys.

None < numbers (bool as int, compared exactly; NaN last) < str by code point < bytes < date < naive datetime <
aware datetime < UUID < tuples (element by element, the shorter first). Keys of equal rank in it are the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from .key_columns import is_array
from .keys import canonical, identity, is_aware, microseconds
from .stable_sort import stable_argsort

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .key_columns import Column, KeyArray, Strings, Structs


class Rank(IntEnum):
    """Classes of keys, ascending: a key of a lower rank sorts before every key of a higher one."""

    NONE = 0
    NUMBER = 1
    NAN = 2
    STR = 3
    BYTES = 4
    DATE = 5
    NAIVE = 6
    AWARE = 7
    UUID = 8
    TUPLE = 9


_NONE, _NAN = (int(Rank.NONE),), (int(Rank.NAN),)
_NUMBER, _STR, _BYTES, _DATE, _UUID, _TUPLE = map(
    int, (Rank.NUMBER, Rank.STR, Rank.BYTES, Rank.DATE, Rank.UUID, Rank.TUPLE)
)


def order(key: object) -> tuple[Any, ...]:
    """A value that compares as the key sorts; its first element is the key's `Rank`."""
    ranked = _ORDERS.get(type(key))
    return ranked(key) if ranked is not None else order(canonical(key))


def _order_datetime(key: datetime) -> tuple[Any, ...]:
    return (int(Rank.AWARE if is_aware(key) else Rank.NAIVE), microseconds(key))


_ORDERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    type(None): lambda _: _NONE,
    bool: lambda key: (_NUMBER, key),
    int: lambda key: (_NUMBER, key),
    float: lambda key: (_NUMBER, key) if key == key else _NAN,
    str: lambda key: (_STR, key),
    bytes: lambda key: (_BYTES, key),
    date: lambda key: (_DATE, key),
    datetime: _order_datetime,
    UUID: lambda key: (_UUID, key.int),
    tuple: lambda key: (_TUPLE, tuple(map(order, key))),
}


def self_ordered(keys: Sequence[object]) -> bool:
    """Return whether Python's own comparison of these keys is already their order."""
    kinds = set(map(type, keys))
    if kinds == {float}:
        return all(key == key for key in keys)
    if kinds == {tuple}:
        tuples = cast("Sequence[tuple[object, ...]]", keys)
        fields = range(len(tuples[0]))
        return len(set(map(len, tuples))) == 1 and all(self_ordered([key[place] for key in tuples]) for place in fields)
    return kinds <= {int, bool} or (len(kinds) == 1 and kinds <= {str, bytes, date})


def argsort(keys: Sequence[object] | KeyArray) -> list[int] | NDArray[np.intp]:
    """The positions of the keys in sort order, equal keys in their own order: a list, or an array for an array."""
    if is_array(keys):
        from .key_columns import column_of

        return _argsort_column(column_of(cast("KeyArray", keys)))
    sequence = cast("Sequence[Any]", keys)
    ranked = sequence if self_ordered(sequence) else [order(key) for key in sequence]
    return sorted(range(len(sequence)), key=ranked.__getitem__)


def _argsort_column(column: Column) -> NDArray[np.intp]:
    from . import key_columns

    if isinstance(column, key_columns.Objects):
        return _positions(argsort(column.keys))
    if isinstance(column, key_columns.Strings):
        positions = _argsort_strings(column)
    elif isinstance(column, key_columns.Structs):
        positions = _argsort_structs(column)
    else:
        positions = _argsort_values(column)
    return _nulls_first(positions, column.nulls)


def _argsort_values(column: Any) -> NDArray[np.intp]:
    from . import key_columns

    if isinstance(column, key_columns.Indexed):
        values = _ranks(column.values)[column.indices]
    else:
        values = column.comparable() if isinstance(column, key_columns.Fixed) else column.values
    return stable_argsort(values)


def _argsort_structs(column: Structs) -> NDArray[np.intp]:
    """Stable sorts from the last field to the first."""
    import numpy as np

    positions: NDArray[np.intp] = np.arange(column.length, dtype=np.intp)
    for field in reversed(column.fields):
        positions = positions[np.argsort(_ranks(field)[positions], kind="stable")]
    return positions


def _ranks(column: Column) -> NDArray[np.intp]:
    """The rank of each key among the distinct keys: ranks compare as the keys do."""
    import numpy as np

    positions = _argsort_column(column)
    ranks = np.zeros(len(positions), dtype=np.intp)
    ranks[positions[1:]] = np.cumsum(_changes(column, positions))
    return ranks


def _changes(column: Column, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return, for each position but the first, whether its key differs from the key before it."""
    import numpy as np

    from . import key_columns

    if isinstance(column, key_columns.Objects):
        keys = [identity(column.keys[position]) for position in positions]
        return np.array([a != b for a, b in pairwise(keys)], dtype=np.bool_)
    changes = _value_changes(column, positions)
    if column.nulls is not None:
        nulls = column.nulls[positions]
        changes = np.where(nulls[1:] | nulls[:-1], nulls[1:] != nulls[:-1], changes)
    return changes


def _value_changes(column: Any, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
    import numpy as np

    from . import key_columns

    if isinstance(column, key_columns.Structs):
        parts = [_changes(field, positions) for field in column.fields]
        return np.logical_or.reduce(parts) if parts else np.zeros(max(len(positions) - 1, 0), dtype=np.bool_)
    if isinstance(column, key_columns.Indexed):
        values = _ranks(column.values)[column.indices[positions]]
    elif isinstance(column, key_columns.Strings):
        texts = column.to_list()
        return np.array([texts[a] != texts[b] for a, b in pairwise(positions.tolist())], dtype=np.bool_)
    else:
        values = (column.comparable() if isinstance(column, key_columns.Fixed) else column.values)[positions]
    changes = values[1:] != values[:-1]
    if values.dtype.kind == "f":
        changes &= ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    return cast("NDArray[np.bool_]", changes)


def _positions(positions: Any) -> NDArray[np.intp]:
    import numpy as np

    return np.asarray(positions, dtype=np.intp)


def _nulls_first(positions: NDArray[np.intp], nulls: Any) -> NDArray[np.intp]:
    import numpy as np

    if nulls is None:
        return positions
    return np.concatenate([np.flatnonzero(nulls), positions[~nulls[positions]]])


def _argsort_strings(column: Strings) -> NDArray[np.intp]:
    """Arrow compares UTF-8 bytes, which is the order of code points; its sort is stable."""
    import pyarrow.compute as pc

    return _positions(pc.sort_indices(column.values).to_numpy(zero_copy_only=False))
