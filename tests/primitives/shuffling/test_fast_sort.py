from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.primitives.shuffling.range_partitioning import range_targets
from treadle.primitives.shuffling.stable_sort import stable_argsort

_RANDOM = np.random.default_rng(20)
_MANY = 50_000


def _text(size: int, letters: int = 94) -> NDArray[Any]:
    return _RANDOM.integers(33, 33 + letters, (_MANY, size), dtype=np.uint8).view(f"S{size}").ravel()


def _tied(values: NDArray[Any], count: int) -> NDArray[Any]:
    """The values with some of them repeated at distant places."""
    places = _RANDOM.permutation(len(values))[: 2 * count]
    values[places[:count]] = values[places[count:]]
    return values


def _same_start() -> NDArray[Any]:
    """Strings, some of which agree in exactly their first eight bytes."""
    values = _text(12)
    view = values.view(np.uint8).reshape(_MANY, 12)
    view[1000:2000, :8] = view[3000:4000, :8]
    return values


_VALUES = {
    "distinct integers": _RANDOM.permutation(_MANY) - _MANY // 2,
    "unsigned integers beyond a signed one": _RANDOM.integers(0, 2**64 - 1, _MANY, dtype=np.uint64),
    "some ties": _tied(_RANDOM.random(_MANY), 500),
    "some ties of integers": _tied(_RANDOM.integers(-(2**62), 2**62, _MANY), 3000),
    "many ties": _RANDOM.integers(0, 1000, _MANY),
    "half of them tied": _tied(_RANDOM.random(_MANY), _MANY // 4),
    "zeros of both signs": np.where(np.arange(_MANY) % 7000 == 0, -0.0, _RANDOM.random(_MANY) * 0 + np.arange(_MANY)),
    "not a number": np.where(np.arange(_MANY) % 9000 == 5, np.nan, _RANDOM.random(_MANY)),
    "ten bytes": _text(10),
    "three bytes": _text(3),
    "ties of bytes": _tied(_text(10), 700),
    "ties of the first eight bytes": _same_start(),
    "zeros at the end": _text(9, 3),
    "texts": _text(6).astype("U6"),
    "few": np.array([3, 1, 2, 1]),
    "none": np.array([], dtype=np.int64),
}


@pytest.mark.parametrize("name", _VALUES)
def test_equal_values_keep_their_order(name: str) -> None:
    values = _VALUES[name]
    assert np.array_equal(stable_argsort(values), np.argsort(values, kind="stable"))


@pytest.mark.parametrize("count", [0, 1, 7, 16, 17, 300])
@pytest.mark.parametrize("kind", ["i8", "u8", "f8", "f4", "i2"])
def test_few_and_many_boundaries_find_the_same_targets(count: int, kind: str) -> None:
    boundaries: list[Any] = sorted(_RANDOM.integers(0, 400, count).tolist())
    keys = _RANDOM.integers(0, 420, 200_000).astype(kind)
    if keys.dtype.kind == "f":
        keys[::1000] = np.nan
        keys[1::1000] = np.inf
        keys[2::1000] = -np.inf
    expected = np.searchsorted(np.array(boundaries, dtype=np.float64), keys.astype(np.float64), side="right")
    found = range_targets(keys, boundaries)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("count", [1, 7, 16, 17, 300])
@pytest.mark.parametrize("name", ["ten bytes", "three bytes", "ties of the first eight bytes", "zeros at the end"])
def test_bytes_are_compared_beyond_the_first_eight(name: str, count: int) -> None:
    values = _VALUES[name]
    boundaries = sorted(set(values[:count].tolist()))
    alone = {one[:8].ljust(8, b"\0"): one for one in boundaries}  # no two share their first eight bytes
    for some in (boundaries, sorted(alone.values())):
        expected = np.searchsorted(np.array(some), values, side="right")
        assert np.array_equal(range_targets(values, some), expected)
        assert np.array_equal(range_targets(values[::-3], some), expected[::-3])
