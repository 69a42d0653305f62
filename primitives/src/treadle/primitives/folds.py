"""Folds in their one order: left folds, the levels of a reduce tree, groups by first occurrence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, Literal, TypeVar

from .errors import DataError, UsageError
from .keys import SELF_IDENTICAL, Key, canonical, identity

T = TypeVar("T")
R = TypeVar("R")


class Nothing(Enum):
    """The value of a fold over nothing; None is a value like any other."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING


def left_fold(
    f: Callable[[Any, Any], Any], values: Iterable[Any], initial: Any = NOTHING
) -> Any | Literal[Nothing.NOTHING]:
    """f(f(f(initial, v0), v1), ...): without `initial` it starts at v0; over nothing it is `initial`."""
    accumulator = initial
    for value in values:
        accumulator = value if accumulator is NOTHING else f(accumulator, value)
    return accumulator


# -- reduce tree ---------------------------------------------------------------------------------------------------


def tree_groups(count: int, fan_in: int) -> list[tuple[int, int]]:
    """[start, stop) of the consecutive groups of `fan_in` that one level makes of `count` partial results."""
    _check_fan_in(fan_in)
    return [(start, min(start + fan_in, count)) for start in range(0, count, fan_in)]


def tree_levels(count: int, fan_in: int) -> int:
    """Levels above `count` leaves until one result is left; at least 1, which is the root, for `finish`."""
    _check_fan_in(fan_in)
    levels = 1
    while count > fan_in:
        count = -(-count // fan_in)
        levels += 1
    return levels


def _check_fan_in(fan_in: int) -> None:
    if fan_in < 2:
        raise UsageError(f"fanIn is {fan_in}, a tree node needs at least 2 children", "Set fanIn to 2 or more.")


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
    """Rows of arrays are; text is not, nor is what has no order."""
    if isinstance(record, str | bytes | dict | set | frozenset):
        return False
    return hasattr(record, "__getitem__") and hasattr(record, "__len__") and getattr(record, "ndim", 1) <= 1


def group_by_key(
    records: Iterable[T], key_of: Callable[[T], object], value_of: Callable[[T], Any] | None = None
) -> Iterator[tuple[Key, list[Any]]]:
    """(first key, values) for each key in the order of first occurrence; values are the records unless `value_of`.

    Holds all records. The key is the canonical form of the first one seen.
    """
    groups: dict[Hashable, tuple[Key, list[Any]]] = {}
    for record in records:
        key = key_of(record)
        name = key if type(key) in SELF_IDENTICAL else identity(key)
        group = groups.get(name)
        if group is None:
            group = groups[name] = (canonical(key), [])
        group[1].append(record if value_of is None else value_of(record))
    yield from groups.values()


def fold_by_key(pairs: Iterable[Any], f: Callable[[Any, Any], Any]) -> list[tuple[Key, Any]]:
    """One (first key, left fold of the values) for each key, at the place of the key's first record.

    A shuffle's `combine`. `pairs` are 2-sequences (DataError otherwise).
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
