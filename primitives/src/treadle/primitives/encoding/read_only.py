"""Values that a user function cannot change: partitions that may be shared, and arrays made read-only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

from .references import Kind

_NUMBERS = {bool, int, float, complex, Decimal}
_TIMES = {date, datetime, time, timedelta, timezone}
ATOMS = frozenset({type(None), str, bytes, UUID, range} | _NUMBERS | _TIMES)
"""Types whose values are immutable and hold no other values."""
_NESTED = {tuple, frozenset}
_SEQUENCES = {tuple, list}
_CONTAINERS = _SEQUENCES | {dict}


def is_frozen(kind: Kind, value: Any) -> bool:
    """Read-only arrays and buffers, tables, and lists of records of exact immutable types (also in tuples and
    frozensets).

    The list of records itself is the runtime's: a user function gets an iterator over it.
    """
    if kind == "table":
        return True
    if kind == "array":
        return _is_frozen_array(value)
    return _are_frozen(value)


def _are_frozen(values: Iterable[Any]) -> bool:
    """Check level by level, by the set of types: a million tuples of numbers take no Python call each."""
    while values:
        met = set(map(type, values))
        types = met - ATOMS
        if not all(map(_may_be_frozen, types - _NESTED)):
            return False
        if any(cls.__name__ == "ndarray" for cls in types) and not all(map(_is_frozen_array, _arrays(values))):
            return False
        if memoryview in types and not all(value.readonly for value in values if type(value) is memoryview):
            return False
        if not types & _NESTED:
            return True
        nested = values if met <= _NESTED else [value for value in values if type(value) in _NESTED]
        if ATOMS.issuperset(map(type, chain.from_iterable(nested))):
            return True
        values = list(chain.from_iterable(nested))
    return True


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if type(value).__name__ == "ndarray")


def _may_be_frozen(cls: type) -> bool:
    """Return whether a non-atomic type is Fraction, a NumPy scalar, or a buffer, whose own flags decide."""
    fractions, numpy = sys.modules.get("fractions"), sys.modules.get("numpy")
    if cls is memoryview or (fractions is not None and cls is fractions.Fraction):
        return True
    return numpy is not None and (
        cls is numpy.ndarray or (issubclass(cls, numpy.generic) and not issubclass(cls, numpy.void | numpy.object_))
    )


def _is_frozen_array(array: Any) -> bool:
    return not array.flags.writeable and not array.dtype.hasobject


# -- arrays of records ---------------------------------------------------------------------------------------------

_DEPTH = 16
"""Levels of containers looked into: a list may hold itself."""


def sealed(records: list[Any]) -> list[Any]:
    """The records with read-only views for their arrays, also those in tuples, lists and dicts (exactly these types).

    It is `records` itself when no array in them can be written to, which takes a pass over the types.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not _may_write(records, numpy.ndarray):
        return records
    return [_sealed(record, numpy.ndarray, _DEPTH) for record in records]


def _may_write(values: Iterable[Any], array: type) -> bool:
    """Return whether the records contain a writeable array, level by level as in `_are_frozen`."""
    for _ in range(_DEPTH):
        met = set(map(type, values))
        if met <= ATOMS:
            return False
        arrays = {cls for cls in met - ATOMS if issubclass(cls, array)}
        if arrays and any(value.flags.writeable for value in values if type(value) in arrays):
            return True
        if not met & _CONTAINERS:
            return False
        if met <= _SEQUENCES:  # without a Python call for each, and without a list where they hold atoms
            if ATOMS.issuperset(map(type, chain.from_iterable(values))):
                return False
            values = list(chain.from_iterable(values))
            continue
        nested = (value for value in values if type(value) in _CONTAINERS)
        values = list(chain.from_iterable(value.values() if type(value) is dict else value for value in nested))
    return False


def _sealed(value: Any, array: type, depth: int) -> Any:
    if isinstance(value, array):
        return read_only(value)
    kind = type(value)
    if kind not in _CONTAINERS or not depth:
        return value
    if kind is dict:
        return {key: _sealed(item, array, depth - 1) for key, item in value.items()}
    return kind(_sealed(item, array, depth - 1) for item in value)


def read_only(array: Any) -> Any:
    """Return a view of the array that cannot be written to, or the array itself if it already is read-only."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
