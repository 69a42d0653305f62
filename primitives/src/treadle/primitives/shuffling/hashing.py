"""Hashes of many keys at once: exactly `stable_hash` of each (docs/hashing.md), without its cost for each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .keys import NAN_BITS, NULL_HASH, Salt, mix, stable_hash, utf8, xxh3

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .key_columns import Column, KeyArray

_CHUNK = 1 << 14
"""Keys mixed at once: 128 KiB stay in the cache."""


def hash_sequence(keys: Sequence[Any]) -> list[int] | NDArray[np.uint64]:
    """`stable_hash` of each key, as an array where NumPy did the work."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        return _hash_texts(keys)
    if kinds == {bytes}:
        return [xxh3(key, Salt.BYTES) for key in keys]
    if kinds == {tuple} and len(set(map(len, keys))) == 1:
        return _hash_tuples(keys)
    numpy = _numpy_for(len(keys))
    if numpy is None or kinds not in ({int}, {float}):
        return [stable_hash(key) for key in keys]
    try:
        return stable_hash_array(numpy.array(keys, dtype=numpy.int64 if kinds == {int} else numpy.float64))
    except OverflowError:
        return [stable_hash(key) for key in keys]


def _hash_tuples(keys: Sequence[tuple[Any, ...]]) -> list[int] | NDArray[np.uint64]:
    """Tuples of one length, position by position."""
    start = mix(len(keys[0]) ^ Salt.TUPLE)
    fields = [hash_sequence([key[place] for key in keys]) for place in range(len(keys[0]))]
    numpy = _numpy_for(len(keys))
    if numpy is not None:
        hashes = numpy.full(len(keys), start, dtype=numpy.uint64)
        return _absorbed(hashes, (numpy.asarray(field, dtype=numpy.uint64) for field in fields))
    found = [start] * len(keys)
    for field in fields:
        found = [mix(value ^ item) for value, item in zip(found, field, strict=True)]
    return found


def _numpy_for(count: int) -> Any:
    """Return NumPy when it is loaded, or when importing it (0.4 s) takes less time than working without it."""
    numpy = sys.modules.get("numpy")
    if numpy is None and count > 500_000:
        import numpy
    return numpy


def _hash_texts(keys: Sequence[str]) -> list[int]:
    try:
        return [xxh3(key.encode(), Salt.STR) for key in keys]
    except UnicodeEncodeError:
        return [xxh3(utf8(key), Salt.STR) for key in keys]


def stable_hash_array(keys: KeyArray) -> NDArray[np.uint64]:
    """`stable_hash` of each element of a one-dimensional NumPy or Arrow array, shape (n,).

    Nulls and NaT are None, structs are tuples of their fields. Raises DataError as `canonical` does.
    """
    from .key_columns import column_of

    return _hash_column(column_of(keys))


def _hash_column(column: Column) -> NDArray[np.uint64]:
    from . import key_columns

    hashes = _hash_values(column)
    nulls = None if isinstance(column, key_columns.Objects) else column.nulls
    if nulls is not None:
        hashes[nulls] = NULL_HASH
    return hashes


def _hash_values(column: Column) -> NDArray[np.uint64]:
    import numpy as np

    from . import key_columns

    if isinstance(column, key_columns.Numbers):
        return _hash_numbers(column.values)
    if isinstance(column, key_columns.Moments):
        salt = {"date": Salt.DATE, "naive": Salt.NAIVE, "aware": Salt.AWARE}[column.clock]
        return _mix_array(column.values.view(np.uint64) ^ np.uint64(salt))
    if isinstance(column, key_columns.Structs):
        return _hash_structs(column)
    if isinstance(column, key_columns.Indexed):
        return _hash_column(column.values)[column.indices]
    if isinstance(column, key_columns.Strings):
        salt = Salt.STR if isinstance(column.empty, str) else Salt.BYTES
        hashes = map(xxh3, column.to_bytes(), repeat(salt))
        return np.fromiter(hashes, dtype=np.uint64, count=len(column.values))
    return np.asarray(hash_sequence(column.to_list()), dtype=np.uint64)


def _mix_array(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of each element, in place."""
    import numpy as np

    scratch = np.empty(min(len(x), _CHUNK), dtype=np.uint64)
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK]
        shifted = scratch[: len(part)]
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            np.right_shift(part, np.uint64(shift), out=shifted)
            part ^= shifted
            part *= np.uint64(factor)
    return x


def _hash_numbers(values: NDArray[Any]) -> NDArray[np.uint64]:
    import numpy as np

    if values.dtype != np.float64:
        return _mix_array(values.view(np.uint64) ^ np.uint64(Salt.WHOLE))
    hashes = np.empty(len(values), dtype=np.uint64)
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        hashes[part] = _salted_doubles(values[part])
    return _mix_array(hashes)


def _salted_doubles(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """The input of `mix`: the salted integer if the double is a 64-bit integer, else its salted IEEE bits."""
    import numpy as np

    whole = (np.floor(values) == values) & (values >= -(2.0**63)) & (values < 2.0**64)
    bits = np.where(np.isnan(values), np.uint64(NAN_BITS), values.view(np.uint64)) ^ np.uint64(Salt.REAL)
    if not whole.any():
        return bits
    below = np.where(whole & (values < 0), values, 0.0).astype(np.int64).view(np.uint64)
    above = np.where(whole & (values >= 0), values, 0.0).astype(np.uint64)
    return np.where(whole, (below | above) ^ np.uint64(Salt.WHOLE), bits)


def _hash_structs(column: Any) -> NDArray[np.uint64]:
    import numpy as np

    start = mix(len(column.fields) ^ Salt.TUPLE)
    hashes = np.full(column.length, start, dtype=np.uint64)
    return _absorbed(hashes, map(_hash_column, column.fields))


def _absorbed(hashes: NDArray[np.uint64], fields: Iterable[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Update the hashes of tuples with the hashes of their next elements, in place."""
    for field in fields:
        hashes ^= field
        _mix_array(hashes)
    return hashes
