"""Folds in their fixed order: left folds, and folds by key, each at the place of the key's first occurrence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, Final, Literal

from ..errors import DataError
from .keys import SELF_IDENTICAL, Key, canonical, identity


class Nothing(Enum):
    """The value of a fold without values; None is a value like any other."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING


def left_fold(f: Callable[[Any, Any], Any], values: Iterable[Any]) -> Any | Literal[Nothing.NOTHING]:
    """Return f(f(v0, v1), v2), ...; NOTHING for no values."""
    rest = iter(values)
    accumulator = next(rest, NOTHING)
    for value in rest:
        accumulator = f(accumulator, value)
    return accumulator


# -- by key --------------------------------------------------------------------------------------------------------


def pair(record: Any) -> tuple[Key, Any]:
    """(key, value) of a record that is a 2-sequence, the key canonical. Raises DataError for any other record."""
    kind = type(record)
    if (kind is not tuple and kind is not list and not _is_sequence(record)) or len(record) != 2:
        raise DataError(
            f"a {kind.__name__} that is no pair has no key: {record!r:.80}",
            "`by: key` needs records (key, value); name a key function or columns otherwise.",
        )
    key = record[0]
    return (key if type(key) in SELF_IDENTICAL else canonical(key)), record[1]


def _is_sequence(record: Any) -> bool:
    """Return whether the value is a sequence. Rows of arrays are; text and unordered collections are not."""
    if isinstance(record, str | bytes | dict | set | frozenset):
        return False
    return hasattr(record, "__getitem__") and hasattr(record, "__len__") and getattr(record, "ndim", 1) <= 1


def fold_by_key(pairs: Iterable[Any], f: Callable[[Any, Any], Any]) -> list[tuple[Key, Any]]:
    """Return one (first key, left fold of the values) for each key, at the place of the key's first record.

    Implements a shuffle's `combine`. Raises DataError unless `pairs` are 2-sequences.
    """
    firsts: list[Key] = []
    folded: dict[Hashable, Any] = {}
    for record in pairs:
        key, value = pair(record)
        name = key if type(key) in SELF_IDENTICAL else identity(key)
        if name in folded:
            folded[name] = f(folded[name], value)
        else:
            firsts.append(key)
            folded[name] = value
    return list(zip(firsts, folded.values(), strict=True))
