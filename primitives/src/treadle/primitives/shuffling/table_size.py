"""Bytes of an Arrow table by its values alone: independent of its chunks, and the sum of its slices' bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSET = 4
"""Bytes of the offset of a value without a fixed length."""


def table_bytes(table: pa.Table) -> int:
    """Bytes of the values in Arrow's layout, without validity bitmaps; for a dictionary column, of the indices."""
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
    except pa.ArrowNotImplementedError:  # unions, and other types that files do not hold either
        return int(array.nbytes)
    return len(array) * _OFFSET + (compute.sum(lengths).as_py() or 0)
