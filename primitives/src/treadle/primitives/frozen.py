"""Whether a decoded partition may be shared: nothing a user function does to it can be seen by the next partition."""

from __future__ import annotations

import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from .references import Kind

_NUMBERS = {bool, int, float, complex, Decimal, Fraction}
_TIMES = {date, datetime, time, timedelta, timezone}
_ATOMS = {type(None), str, bytes, UUID, range} | _NUMBERS | _TIMES
_NESTED = {tuple, frozenset}


def is_frozen(kind: Kind, value: Any) -> bool:
    """Read-only arrays, tables, and lists of records of exact immutable types (tuples and frozensets of them too).

    The list of records itself is the runtime's: a user function gets an iterator over it.
    """
    if kind == "table":
        return True
    if kind == "array":
        return _is_frozen_array(value)
    return all(map(_is_frozen_type, set(map(type, value)) - _ATOMS - _NESTED)) and _are_frozen(value)


def _are_frozen(records: Any) -> bool:
    for record in records:
        cls = type(record)
        if cls in _ATOMS:
            continue
        if cls in _NESTED:
            if not _are_frozen(record):
                return False
        elif not _is_frozen_type(cls) or (cls.__name__ == "ndarray" and not _is_frozen_array(record)):
            return False
    return True


def _is_frozen_type(cls: type) -> bool:
    """Whether instances of an atom, of a NumPy scalar or of `ndarray` itself may be immutable."""
    numpy = sys.modules.get("numpy")
    if cls in _ATOMS:
        return True
    return numpy is not None and (
        cls is numpy.ndarray or (issubclass(cls, numpy.generic) and not issubclass(cls, numpy.void | numpy.object_))
    )


def _is_frozen_array(array: Any) -> bool:
    return not array.flags.writeable and not array.dtype.hasobject
