"""Keys of records: the allowed values, their equality, and their hashes (docs/hashing.md).

A key is None, bool, int, float, str, bytes, date, datetime, UUID or a tuple of these. NumPy and Arrow scalars become
Python's first. Equality is Python's, made an equivalence: NaN equals NaN at any depth, and aware datetimes are equal
when they are the same instant.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, NoReturn, TypeAlias, cast
from uuid import UUID

import xxhash
from msgspec import Struct

from ..encoding.tabular import type_name
from ..errors import DataError

Key: TypeAlias = "bool | int | float | str | bytes | date | datetime | UUID | tuple[Key, ...] | None"

_NoneType = type(None)
_PLAIN = frozenset({_NoneType, bool, int, float, str, bytes, date, datetime, UUID})
_ALLOWED = "None, bool, int, float, str, bytes, date, datetime, UUID and tuples of these"
_OF_A_COLUMN = (
    "It is a column of a frame that is one record: return the frame from a map with `per: partition`, whose rows are "
    "then records. A vectorised key function returns one key for each row, such as `frame[name].to_list()`."
)
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1).toordinal()

# -- allowed keys ---------------------------------------------------------------------------------------------


def canonical(key: object) -> Key:
    """The key as plain Python: NumPy and Arrow scalars, subclasses and elements of tuples converted.

    Raises DataError naming the type of anything that cannot be a key.
    """
    kind = type(key)
    if kind in _PLAIN:
        return cast(Key, key)
    if kind is tuple:
        items = cast("tuple[object, ...]", key)
        return cast(Key, items) if all(type(item) in _PLAIN for item in items) else tuple(map(canonical, items))
    return _converted(key)


def refuse(key: object, why: str = "") -> NoReturn:
    """Raise the DataError for something that cannot be a key."""
    kind = type(key)
    name = type_name(key)
    is_column = hasattr(kind, "__arrow_c_stream__") or kind.__module__.partition(".")[0] in ("pandas", "polars")
    hint = _OF_A_COLUMN if is_column else f"Let the key function return one of {_ALLOWED}."
    raise DataError(f"a {name} cannot be a key{why and ': ' + why} ({_shown(key)})", hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _converted(key: object) -> Key:
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and isinstance(key, numpy.generic):
        return _from_numpy(key)
    if arrow is not None and isinstance(key, arrow.Scalar):
        return _from_arrow(key)
    for base, convert in _BASES:
        if isinstance(key, base):
            return convert(key)
    refuse(key)


def _plain_datetime(key: Any) -> Key:
    """A datetime subclass (such as pandas.Timestamp) as a datetime; finer than microseconds is refused."""
    if getattr(key, "nanosecond", 0):
        refuse(key, "it is finer than microseconds")
    try:
        day = (key.year, key.month, key.day)
        return datetime(*day, key.hour, key.minute, key.second, key.microsecond, key.tzinfo, fold=key.fold)
    except (ValueError, TypeError):
        refuse(key)


_BASES: tuple[tuple[type, Callable[[Any], Key]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (tuple, lambda key: tuple(map(canonical, key))),
    (datetime, _plain_datetime),
    (date, lambda key: date(key.year, key.month, key.day)),
    (UUID, lambda key: UUID(int=key.int)),
)


def _from_numpy(key: Any) -> Key:
    import numpy as np

    if isinstance(key, np.datetime64):
        return _from_datetime64(key)
    if isinstance(key, np.void) and key.dtype.names is not None:
        return tuple(canonical(key[name]) for name in key.dtype.names)
    value = key.item()
    if type(value) not in _PLAIN:
        refuse(key)
    return cast(Key, value)


def _from_datetime64(key: Any) -> Key:
    """A date for units of days and longer, a datetime for shorter ones, None for NaT."""
    import numpy as np

    value = key.item()
    if type(value) is int:  # NumPy returns integers for values outside the range of datetime
        microseconds = key.astype("M8[us]")
        if np.datetime_data(key.dtype)[0] not in ("ns", "ps", "fs", "as") or microseconds != key:
            refuse(key, "it is finer than microseconds or outside the years 1 to 9999")
        value = microseconds.item()
    if value is not None and type(value) not in (date, datetime):
        refuse(key, "it is outside the years 1 to 9999")
    return cast(Key, value)


def _from_arrow(key: Any) -> Key:
    if hasattr(key, "items") and hasattr(key.type, "fields"):  # a struct: the tuple of its fields
        return tuple(canonical(value) for _, value in key.items()) if key.is_valid else None
    try:
        value = key.as_py()
    except (ValueError, OverflowError) as error:
        refuse(key, str(error))
    if type(value) not in _PLAIN:
        if isinstance(value, datetime):
            return _plain_datetime(value)
        refuse(value, f"it comes from the Arrow type {key.type}")
    return cast(Key, value)


# -- equality of keys ------------------------------------------------------------------------------------


class _NotANumber(Enum):
    NAN = "nan"


class _Instant(Struct, frozen=True):
    microseconds: int


SELF_IDENTICAL = frozenset({_NoneType, bool, int, str, bytes, date, UUID})
"""Types whose keys are canonical and their own identity."""


def identity(key: object) -> Hashable:
    """A hashable value: two keys are the same key exactly when their identities are equal.

    Python's equality, except that NaN equals NaN and aware datetimes are compared as instants (Python's own
    comparison of those is not transitive around a change of daylight saving time).
    """
    kind = type(key)
    if kind in SELF_IDENTICAL:
        return key
    if kind is float:
        return key if key == key else _NotANumber.NAN
    if kind is tuple:
        return tuple(map(identity, cast("tuple[object, ...]", key)))
    if kind is datetime:
        moment = cast(datetime, key)
        return _Instant(microseconds(moment)) if is_aware(moment) else moment
    return identity(canonical(key))


def is_aware(moment: datetime) -> bool:
    return moment.tzinfo is not None and moment.utcoffset() is not None


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970-01-01T00:00: UTC for aware moments, the wall clock's for naive ones."""
    since: timedelta = moment - (_EPOCH_UTC if is_aware(moment) else _EPOCH)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# -- hashes of keys ----------------------------------------------------------------------------------------------

_MASK = 2**64 - 1
_SEED = int.from_bytes(b"treadle1", "big")
xxh3: Callable[[bytes, int], int] = xxhash.xxh3_64_intdigest


def mix(x: int) -> int:
    """Finaliser of SplitMix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _salt(tag: int) -> int:
    return mix(_SEED + tag)


class Salt:
    """Salts that separate the classes of keys, in the order of their tags in docs/hashing.md."""

    NONE, WHOLE, REAL, BIG, STR, BYTES, DATE, NAIVE, AWARE, UUID, TUPLE = (_salt(tag) for tag in range(11))


NULL_HASH = mix(Salt.NONE)
NAN_BITS = 0x7FF8 << 48


def stable_hash(key: object) -> int:
    """Unsigned 64-bit hash of a key: the same in every process, and for every pair of equal keys at any depth."""
    hasher = _HASHERS.get(type(key))
    return hasher(key) if hasher is not None else stable_hash(canonical(key))


def _hash_int(key: int) -> int:
    if -(2**63) <= key < 2**64:
        return mix((key & _MASK) ^ Salt.WHOLE)
    try:
        nearest = float(key)
    except OverflowError:
        nearest = 0.0
    return _hash_real(nearest) if nearest == key else _hash_big(key)


def _hash_big(key: int) -> int:
    """An integer that no double holds: its shortest two's complement, little-endian."""
    size = ((key if key >= 0 else ~key).bit_length() + 8) // 8
    return xxh3(key.to_bytes(size, "little", signed=True), Salt.BIG)


def _hash_float(key: float) -> int:
    if key.is_integer() and -(2.0**63) <= key < 2.0**64:
        return mix((int(key) & _MASK) ^ Salt.WHOLE)
    return _hash_real(key)


def _hash_real(key: float) -> int:
    bits = struct.unpack("<Q", struct.pack("<d", key))[0] if key == key else NAN_BITS
    return mix(bits ^ Salt.REAL)


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash_datetime(key: datetime) -> int:
    return mix((microseconds(key) & _MASK) ^ (Salt.AWARE if is_aware(key) else Salt.NAIVE))


def _hash_tuple(key: tuple[object, ...]) -> int:
    value = mix(len(key) ^ Salt.TUPLE)
    for item in key:
        value = mix(value ^ stable_hash(item))
    return value


_HASHERS: dict[type, Callable[[Any], int]] = {
    _NoneType: lambda _: NULL_HASH,
    bool: _hash_int,
    int: _hash_int,
    float: _hash_float,
    str: lambda key: xxh3(utf8(key), Salt.STR),
    bytes: lambda key: xxh3(key, Salt.BYTES),
    date: lambda key: mix(((key.toordinal() - EPOCH_DAY) & _MASK) ^ Salt.DATE),
    datetime: _hash_datetime,
    UUID: lambda key: xxh3(key.bytes, Salt.UUID),
    tuple: _hash_tuple,
}


def identities(keys: Sequence[Any]) -> Sequence[Hashable]:
    """A hashable value for each canonical key: equal for the same key."""
    return keys if set(map(type, keys)) <= SELF_IDENTICAL else [identity(key) for key in keys]
