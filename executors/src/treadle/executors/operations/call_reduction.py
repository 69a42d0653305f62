"""The functions that workers call for `map_reduce` of a session.

Per all: `fold_items` for each task of items, then `fold_values` in a tree. Per key: `fold_pairs` for each task, whose
result has a part for each reducer; `fold_parts` in each reducer, which reads its part of each task; then `as_dict`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple

from treadle.primitives.errors import DataError
from treadle.primitives.shuffling.folds import fold_by_key
from treadle.primitives.shuffling.keys import SELF_IDENTICAL, Key, identity
from treadle.primitives.shuffling.partitioning import hash_targets

Combine = Callable[[Any, Any], Any]
_TASK = 32
"""Bits for the place of a key within its task."""


class Folded(NamedTuple):
    """Distinct keys in the order of their first occurrence, their values, and their places in that order."""

    keys: list[Key]
    values: list[Any]
    places: list[int]

    def add(self, key: Key, value: Any, place: int) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.places.append(place)


def fold_items(function: Callable[[Any], Any], combine: Combine, items: Iterable[Any]) -> Any:
    """Combine the function's results for the items of one task."""
    return reduce(combine, map(function, items))


def fold_values(combine: Combine, values: Iterable[Any], *initial: Any) -> Any:
    """Combine an initial value and values, at least one in all, from left to right."""
    return reduce(combine, values, *initial)


def fold_pairs(function: Callable[[Any], Any], combine: Combine, parts: int, items: Iterable[Any]) -> list[Folded]:
    """Combine the values of equal keys of one task. A part for each reducer.

    Raises DataError when a result is not a pair, or a key is not allowed.
    """
    folded = fold_by_key(chain.from_iterable(map(_pairs, map(function, items))), combine)
    divided = [Folded([], [], []) for _ in range(parts)]
    targets = hash_targets([key for key, _ in folded], parts)
    for place, ((key, value), target) in enumerate(zip(folded, targets, strict=True)):
        divided[target].add(key, value, place)
    return divided


def _pairs(found: Mapping[Any, Any] | Iterable[Any]) -> Iterable[Any]:
    return found.items() if isinstance(found, Mapping) else found


def fold_parts(combine: Combine, tasks: Iterable[Folded]) -> Folded:
    """Combine the values of equal keys of all tasks, in the order of the tasks."""
    found = Folded([], [], [])
    index: dict[Hashable, int] = {}
    for number, task in enumerate(tasks):
        for key, value, place in zip(*task, strict=True):
            at = index.setdefault(key if type(key) in SELF_IDENTICAL else identity(key), len(index))
            if at < len(found.keys):
                found.values[at] = combine(found.values[at], value)
            else:
                found.add(key, value, (number << _TASK) + place)
    return found


def fold_to_dict(combine: Combine, tasks: Iterable[Folded]) -> dict[Key, Any]:
    """As `fold_parts`, for a single reducer."""
    return as_dict([fold_parts(combine, tasks)])


def as_dict(reduced: Iterable[Folded]) -> dict[Key, Any]:
    """The values by key, in the order of the keys' first occurrence. Raises DataError for keys that a dict confuses."""
    together = Folded([], [], [])
    for one in reduced:
        together.keys.extend(one.keys)
        together.values.extend(one.values)
        together.places.extend(one.places)
    keys, values, places = together
    found = {keys[at]: values[at] for at in sorted(range(len(keys)), key=places.__getitem__)}
    if len(found) < len(keys):
        raise DataError(
            "two keys are different instants that are equal in a dict: local times of an hour that their zone repeats",
            "Use times in UTC as keys.",
        )
    return found
