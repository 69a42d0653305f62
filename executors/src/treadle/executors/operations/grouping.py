"""Groups of values by their keys, in the order of first occurrence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, cast

from treadle.primitives.shuffling.keys import SELF_IDENTICAL, canonical, identities

_ARROW = {"bool", "string", "large_string", "binary", "large_binary", "double"}
_ARROW |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
"""Arrow types whose `to_pylist` returns canonical keys."""


def plain(keys: Any) -> Sequence[Any]:
    """The keys as canonical Python values; `keys` is a list, or an array of NumPy or Arrow."""
    if isinstance(keys, list):
        return keys if set(map(type, keys)) <= SELF_IDENTICAL else [canonical(key) for key in keys]
    dtype = getattr(keys, "dtype", None)
    if dtype is not None and dtype.kind in "biuf" and dtype.itemsize <= 8 and keys.ndim == 1:
        return cast("list[Any]", keys.tolist())
    if str(getattr(keys, "type", "")) in _ARROW:
        return cast("list[Any]", keys.to_pylist())
    return [canonical(key) for key in keys]


def group(keys: Sequence[Any], values: Iterable[Any]) -> list[tuple[Any, list[Any]]]:
    """(first key, its values) for each key; `keys` are canonical."""
    groups: dict[Hashable, tuple[Any, list[Any]]] = {}
    for name, key, value in zip(identities(keys), keys, values, strict=True):
        if name in groups:
            groups[name][1].append(value)
        else:
            groups[name] = (key, [value])
    return list(groups.values())


def joint_groups(
    inputs: Sequence[tuple[Sequence[Any], Iterable[Any]]],
) -> list[tuple[Any, list[list[Any]]]]:
    """(first key, its values in each input) for each key of any input; the inputs are (canonical keys, values)."""
    groups: dict[Hashable, tuple[Any, list[list[Any]]]] = {}
    for index, (keys, values) in enumerate(inputs):
        for name, key, value in zip(identities(keys), keys, values, strict=True):
            if name not in groups:
                groups[name] = (key, [[] for _ in inputs])
            groups[name][1][index].append(value)
    return list(groups.values())
