from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.folds import NOTHING, fold_by_key, group_by_key, left_fold, pair, tree_groups, tree_levels
from treadle.primitives.keys import identity
from treadle.primitives.testing.keys import simple_keys


def _nest(a: Any, b: Any) -> Any:
    return (a, b)


def test_left_fold_nests_to_the_left() -> None:
    assert left_fold(_nest, [1, 2, 3]) == ((1, 2), 3)
    assert left_fold(_nest, [1, 2], initial=0) == ((0, 1), 2)


def test_fold_of_one_value_is_that_value_and_of_none_is_nothing() -> None:
    assert left_fold(_nest, [1]) == 1
    assert left_fold(_nest, []) is NOTHING
    assert left_fold(_nest, [], initial=0) == 0


def test_none_is_a_value_to_a_fold() -> None:
    assert left_fold(_nest, [None]) is None
    assert left_fold(_nest, [None, 1]) == (None, 1)
    assert left_fold(_nest, [1], initial=None) == (None, 1)


@given(st.lists(st.integers(), min_size=1, max_size=60), st.integers(2, 9))
def test_tree_of_groups_folds_all_leaves_in_order(leaves: list[int], fan_in: int) -> None:
    level: list[Any] = [[leaf] for leaf in leaves]
    for _ in range(tree_levels(len(leaves), fan_in)):
        level = [left_fold(lambda a, b: a + b, level[start:stop]) for start, stop in tree_groups(len(level), fan_in)]
    assert level == [leaves]


@pytest.mark.parametrize(
    ("count", "fan_in", "levels"), [(0, 2, 1), (1, 16, 1), (16, 16, 1), (17, 16, 2), (256, 16, 2), (257, 16, 3)]
)
def test_tree_has_as_many_levels_as_it_needs_and_at_least_the_root(count: int, fan_in: int, levels: int) -> None:
    assert tree_levels(count, fan_in) == levels


def test_only_the_last_group_of_a_level_is_smaller() -> None:
    assert tree_groups(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert tree_groups(0, 3) == []


@pytest.mark.parametrize("fan_in", [1, 0, -1])
def test_tree_that_would_never_end_is_refused(fan_in: int) -> None:
    for shape in (tree_groups, tree_levels):
        with pytest.raises(UsageError, match="fanIn"):
            shape(4, fan_in)


# -- by key ------------------------------------------------------------------------------------------------------------


def test_groups_come_in_the_order_of_their_first_record_under_their_first_key() -> None:
    records = [(1.0, "a"), ("x", "b"), (True, "c"), (float("nan"), "d"), (np.float32("nan"), "e"), (1, "f")]
    groups = list(group_by_key(records, lambda record: record[0], lambda record: record[1]))
    assert [(repr(key), values) for key, values in groups] == [
        ("1.0", ["a", "c", "f"]),
        ("'x'", ["b"]),
        ("nan", ["d", "e"]),
    ]


def test_group_values_are_whole_records_by_default_and_keys_plain() -> None:
    ((key, values),) = group_by_key(["aa", "ab"], lambda record: np.str_(record[0]))
    assert type(key) is str
    assert values == ["aa", "ab"]


@given(st.lists(st.tuples(simple_keys(), st.integers()), max_size=12))
def test_fold_by_key_is_a_left_fold_of_each_group(pairs: list[Any]) -> None:
    groups = group_by_key(pairs, lambda record: record[0], lambda record: record[1])
    expected = [(identity(key), left_fold(_nest, values)) for key, values in groups]
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
