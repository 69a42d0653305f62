from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import DataError
from treadle.primitives.shuffling.folds import NOTHING, fold_by_key, left_fold, pair
from treadle.primitives.shuffling.keys import identity
from treadle.primitives.testing.keys import simple_keys


def _nest(a: Any, b: Any) -> Any:
    return (a, b)


def test_left_fold_nests_to_the_left() -> None:
    assert left_fold(_nest, [1, 2, 3]) == ((1, 2), 3)


def test_fold_of_one_value_is_that_value_and_of_none_is_nothing() -> None:
    assert left_fold(_nest, [1]) == 1
    assert left_fold(_nest, []) is NOTHING


def test_none_is_a_value_to_a_fold() -> None:
    assert left_fold(_nest, [None]) is None
    assert left_fold(_nest, [None, 1]) == (None, 1)


# -- by key ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(simple_keys(), st.integers()), max_size=12))
def test_fold_by_key_is_a_left_fold_of_each_group(pairs: list[Any]) -> None:
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(identity(key), []).append(value)
    expected = [(key, left_fold(_nest, values)) for key, values in groups.items()]
    assert [(identity(key), value) for key, value in fold_by_key(pairs, _nest)] == expected


def test_survivor_of_a_combine_is_a_pair_at_its_first_place() -> None:
    assert fold_by_key([["b", 1], ("a", 2), ["b", 3]], lambda a, b: a + b) == [("b", 4), ("a", 2)]


def test_row_of_an_array_is_a_pair() -> None:
    assert pair(np.array([3, 4])) == (3, 4)
    assert pair(np.array([(3, b"x")], dtype="i4,S1")[0]) == (3, b"x")


@pytest.mark.parametrize(
    "record", ["ab", b"ab", (1,), (1, 2, 3), [], 5, None, {1: 2, 3: 4}, np.zeros((2, 2)), np.arange(3)]
)
def test_record_that_is_not_a_pair_is_refused(record: Any) -> None:
    with pytest.raises(DataError, match="has no key"):
        pair(record)
