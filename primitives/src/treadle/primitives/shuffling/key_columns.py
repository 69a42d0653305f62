"""Arrays of keys, brought to a few shapes that hash, sort and search without a Python object per key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import Struct

from ..errors import DataError, UsageError
from .keys import EPOCH_DAY as EPOCH_DAY
from .keys import Key, canonical

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    KeyArray: TypeAlias = NDArray[Any] | pa.Array | pa.ChunkedArray
    """A one-dimensional NumPy array, or an Arrow array or chunked array."""
    Nulls: TypeAlias = NDArray[np.bool_] | None
    """True where the key is None; None when none is."""


class Numbers(Struct, frozen=True):
    """int64, uint64 or float64 in native byte order."""

    values: NDArray[Any]
    nulls: Nulls = None


class Moments(Struct, frozen=True):
    """int64 days (`date`) or microseconds since 1970-01-01."""

    clock: Literal["date", "naive", "aware"]
    values: NDArray[np.int64]
    nulls: Nulls = None


class Fixed(Struct, frozen=True):
    """NumPy S, U or V: strings of at most, or (V) exactly, so many characters."""

    values: NDArray[Any]
    nulls: Nulls = None

    def to_list(self) -> list[Any]:
        return cast("list[Any]", self.values.tolist())

    def comparable(self) -> NDArray[Any]:
        """S or U, which NumPy sorts and searches; V as S is the same order, for its width is the same for all."""
        import numpy as np

        width = self.values.dtype.itemsize
        return np.ascontiguousarray(self.values).view(f"S{width}") if self.values.dtype.kind == "V" else self.values


class Strings(Struct, frozen=True):
    """An Arrow string or binary array. Where it is null, its list holds an empty string."""

    values: Any
    empty: str | bytes
    nulls: Nulls = None

    def to_list(self) -> list[Any]:
        return cast("list[Any]", self._filled().to_pylist())

    def to_bytes(self) -> list[bytes]:
        """Text as UTF-8."""
        import pyarrow as pa

        values = self._filled()
        wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        raw = values.cast(pa.large_binary() if wide else pa.binary())
        return cast("list[bytes]", raw.to_numpy(zero_copy_only=False).tolist())

    def _filled(self) -> Any:
        return self.values if self.nulls is None else self.values.fill_null(self.empty)


class Structs(Struct, frozen=True):
    """Tuples of one length, field by field."""

    fields: tuple[Column, ...]
    length: int
    nulls: Nulls = None


class Indexed(Struct, frozen=True):
    """A dictionary array; the index of a null is 0 and has no meaning."""

    values: Column
    indices: NDArray[np.int64]
    nulls: Nulls = None


class Objects(Struct, frozen=True):
    """Anything else, as canonical keys."""

    keys: list[Key]

    def to_list(self) -> list[Any]:
        return self.keys


Column: TypeAlias = Numbers | Moments | Fixed | Strings | Structs | Indexed | Objects


def is_array(keys: object) -> bool:
    """Return whether `keys` is a NumPy or Arrow array rather than a Python sequence; imports neither."""
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and isinstance(keys, numpy.ndarray):
        return True
    return arrow is not None and isinstance(keys, (arrow.Array, arrow.ChunkedArray))


def column_of(keys: KeyArray) -> Column:
    """The array as a column. Raises DataError for element types that cannot be keys."""
    import numpy as np

    if isinstance(keys, np.ndarray):
        return _numpy_column(keys)
    if not is_array(keys):
        raise UsageError(f"keys must be a NumPy or Arrow array, not {type(keys).__name__}")
    return _arrow_column(keys)


# -- NumPy ---------------------------------------------------------------------------------------------------------


def _numpy_column(keys: NDArray[Any]) -> Column:
    if keys.ndim != 1:
        raise DataError(
            f"an array of keys must have one dimension, this one has shape {keys.shape}",
            "One key for each record: for rows of bytes, np.ascontiguousarray(rows).view(f'V{width}')[:, 0].",
        )
    if keys.dtype.names is not None:
        return Structs(tuple(_numpy_column(keys[name]) for name in keys.dtype.names), len(keys))
    keys = keys if keys.dtype.isnative else keys.astype(keys.dtype.newbyteorder("="))
    if keys.dtype.kind in "biuf" and keys.dtype.itemsize <= 8:
        return Numbers(_widened(keys))
    if keys.dtype.kind == "M":
        return _moments(keys) or _objects(keys)
    if keys.dtype.kind in "SUV" and keys.dtype.itemsize and keys.dtype.subdtype is None:
        return Fixed(keys)
    return _objects(keys)


def _objects(keys: Any) -> Objects:
    return Objects([canonical(key) for key in keys])


def _widened(keys: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    wide = {"b": np.uint64, "u": np.uint64, "i": np.int64, "f": np.float64}[keys.dtype.kind]
    return np.ascontiguousarray(keys, dtype=wide)


_MICROSECONDS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970-01-01: the range of `date`."""


def _moments(keys: NDArray[Any], clock: Literal["naive", "aware"] = "naive") -> Moments | None:
    """A datetime64 array as days or microseconds; None when a key needs a closer look (or is to be refused)."""
    import numpy as np

    unit, count = np.datetime_data(keys.dtype)
    nulls = np.isnat(keys)
    if count != 1 or unit not in ("D", "ns", *_MICROSECONDS):
        return None
    raw = np.where(nulls, np.int64(0), keys.view(np.int64))
    if unit == "ns":
        values, rest = np.divmod(raw, 1_000)
        fits = not rest.any()
    else:
        scale = _MICROSECONDS.get(unit, _DAY)
        low, high = _FIRST_DAY * _DAY // scale, ((_LAST_DAY + 1) * _DAY - 1) // scale
        fits = bool(((raw >= low) & (raw <= high)).all())
        values = raw * (1 if unit == "D" else scale) if fits else raw
    found = nulls if nulls.any() else None
    return Moments("date" if unit == "D" else clock, values, found) if fits else None


# -- Arrow ---------------------------------------------------------------------------------------------------------


def _arrow_column(keys: Any) -> Column:
    import pyarrow as pa

    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        return _arrow_chunked(keys)
    kind, types = keys.type, pa.types
    nulls = keys.is_null().to_numpy(zero_copy_only=False) if keys.null_count else None
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return Numbers(_widened(_filled(keys, False if types.is_boolean(kind) else 0)), nulls)
    if types.is_date(kind) or types.is_timestamp(kind):
        return _arrow_moments(keys, nulls)
    if types.is_dictionary(kind):
        return _arrow_dictionary(keys, nulls)
    if types.is_struct(kind):
        fields = (_arrow_column(keys.field(index)) for index in range(kind.num_fields))
        return Structs(tuple(fields), len(keys), nulls)
    return _arrow_strings(keys, nulls) or _objects(keys)


def _arrow_dictionary(keys: Any, nulls: Nulls) -> Column:
    """Nulls may be indices or values; an empty dictionary has no valid index."""
    values = _arrow_column(keys.dictionary) if len(keys.dictionary) else None
    if values is None or isinstance(values, Structs | Objects):
        return _objects(keys)
    indices = _filled(keys.indices, 0).astype("int64")
    if values.nulls is not None:
        among = values.nulls[indices]
        nulls = among if nulls is None else nulls | among
    return Indexed(values, indices, nulls)


def _arrow_chunked(keys: Any) -> Column:
    """More than one array can hold (strings beyond 2 GiB): widen the offsets."""
    import pyarrow as pa

    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(keys.type)
    return _objects(keys) if wide is None else _arrow_column(keys.cast(wide))


def _filled(keys: Any, value: object) -> NDArray[Any]:
    filled = keys.fill_null(value) if keys.null_count else keys
    return cast("NDArray[Any]", filled.to_numpy(zero_copy_only=False))


def _arrow_moments(keys: Any, nulls: Nulls) -> Column:
    import pyarrow as pa

    is_date = pa.types.is_date(keys.type)
    keys_as_days = keys.cast(pa.date32()) if is_date else keys
    clock: Literal["naive", "aware"] = "aware" if not is_date and keys.type.tz is not None else "naive"
    column = _moments(keys_as_days.to_numpy(zero_copy_only=False), clock)
    return _objects(keys) if column is None else Moments(column.clock, column.values, nulls)


def _arrow_strings(keys: Any, nulls: Nulls) -> Column | None:
    import pyarrow as pa

    types, kind = pa.types, keys.type
    if types.is_string(kind) or types.is_large_string(kind):
        return Strings(keys, "", nulls)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Strings(keys, b"", nulls)
    if types.is_string_view(kind):
        return Strings(keys.cast(pa.large_string()), "", nulls)
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return Strings(keys.cast(pa.large_binary()), b"", nulls)
    return None
