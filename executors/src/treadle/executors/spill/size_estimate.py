"""Estimates the memory of records: the deep size of a sample, times the number of records."""

from __future__ import annotations

import gc
from collections.abc import Collection
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from treadle.primitives.encoding.references import Kind

_LEAST, _SAMPLE, _EVERY = 4, 32, 32
"""Sample size for a list: one record in `_EVERY`, at least `_LEAST` and at most `_SAMPLE`."""
_FEW = 8
"""Items measured in a container inside a record."""
_DEPTH = 4
_POINTER = 8
_FLAT = {type(None), bool, int, float, complex, str, bytes, date, datetime, time, timedelta, Decimal, UUID, range}
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Objects that instances refer to without owning them."""


def memory_of(kind: Kind, value: Any) -> int:
    """Approximate bytes. Objects that several records share count once per record; columns count even if they are
    mapped."""
    if kind != "objects":
        return int(value.nbytes)
    count = len(value)
    if not count:
        return 0
    wanted = min(max(count // _EVERY, _LEAST), _SAMPLE)
    sample = value if count <= wanted else value[:: -(-count // wanted)]
    return (sum(_deep(record, _DEPTH) for record in sample) // len(sample) + _POINTER) * count


def _deep(one: Any, depth: int) -> int:
    kind, size = type(one), getsizeof(one, 64)
    if kind in _FLAT or not depth:
        return size
    if kind in (tuple, list, set, frozenset):
        return size + _all(one, depth - 1)
    if kind is dict:
        return size + _all(one.keys(), depth - 1) + _all(one.values(), depth - 1)
    return size + _all([inner for inner in gc.get_referents(one) if not isinstance(inner, _SHARED)], depth - 1)


def _all(items: Collection[Any], depth: int) -> int:
    count = len(items)
    if count <= _FEW:
        return sum(_deep(item, depth) for item in items)
    return sum(_deep(item, depth) for item in islice(items, _FEW)) * count // _FEW
