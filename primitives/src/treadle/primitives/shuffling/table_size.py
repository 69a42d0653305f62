"""Bytes of an Arrow table by its values alone: the same however it is cut into chunks, and the sum of its slices'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSET = 4
"""Bytes that say where a value of no fixed length begins."""


def table_bytes(table: pa.Table) -> int:
    """What the values take in Arrow's layout, without what says which are null; of a dictionary column the indices."""
    return sum(_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _bytes(array: Any) -> int:
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes(array.storage)
    if types.is_dictionary(kind):
        return _bytes(array.indices)
    if types.is_struct(kind):
        return sum(map(_bytes, array.flatten()))
    if types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    if hasattr(array, "flatten"):
        return len(array) * _OFFSET + _bytes(array.flatten())
    return _bytes_of_values(array)


def _bytes_of_values(array: Any) -> int:
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_null(array.type):
        return 0
    try:
        return len(array) * max(1, int(array.type.bit_width) // 8)
    except ValueError:  # values differ in length
        pass
    try:
        lengths = compute.binary_length(array.cast(pa.large_binary()))
    except pa.ArrowNotImplementedError:  # unions, and what is not read from files either
        return int(array.nbytes)
    return len(array) * _OFFSET + (compute.sum(lengths).as_py() or 0)
