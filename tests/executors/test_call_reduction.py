"""The folds of `map_reduce` give the result of one loop over all items, for any tasks, reducers and keys."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from operator import add
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.executors.operations.call_reduction import (
    as_dict,
    fold_items,
    fold_pairs,
    fold_parts,
    fold_to_dict,
    fold_values,
)
from treadle.primitives.errors import DataError
from treadle.primitives.shuffling.folds import fold_by_key
from treadle.primitives.shuffling.keys import stable_hash
from treadle.primitives.testing.keys import keys

ITEMS = st.lists(st.lists(st.tuples(keys(), st.text("abc", max_size=2)), max_size=6), max_size=12)
"""For each item its pairs. The values show the order in which they are joined."""


def as_given(item: Any) -> Any:
    return item


def divided(items: list[Any], cuts: list[int]) -> list[list[Any]]:
    bounds = sorted({0, *(cut % (len(items) + 1) for cut in cuts), len(items)})
    return [items[start:stop] for start, stop in pairwise(bounds)]


@given(ITEMS, st.lists(st.integers(0, 100), max_size=4), st.integers(1, 4))
def test_folds_by_key_equal_one_loop_over_all_pairs(items: list[Any], cuts: list[int], reducers: int) -> None:
    expected = fold_by_key((pair for item in items for pair in item), add)
    assume(len(dict(expected)) == len(expected))
    tasks = [fold_pairs(as_given, add, reducers, task) for task in divided(items, cuts)]
    parts = [fold_parts(add, [task[part] for task in tasks]) for part in range(reducers)]
    assert repr(list(as_dict(parts).items())) == repr(expected)
    for part, folded in enumerate(parts):
        assert all(stable_hash(key) % reducers == part for key in folded.keys)
        assert folded.places == sorted(folded.places)
    if reducers == 1:
        assert repr(fold_to_dict(add, [task[0] for task in tasks])) == repr(dict(expected))


@given(st.lists(st.text("abc"), min_size=1), st.lists(st.integers(0, 100), max_size=4), st.text("xy", max_size=1))
def test_folds_of_all_join_the_results_in_the_order_of_the_items(
    items: list[str], cuts: list[int], initial: str
) -> None:
    made = [fold_items(str.upper, add, task) for task in divided(items, cuts)]
    assert fold_values(add, made, initial) == initial + "".join(items).upper()


def test_dict_is_as_good_as_its_pairs() -> None:
    (folded,) = fold_pairs(as_given, add, 1, [{"a": 1, "b": 2}, [("a", 3)], iter([["c", 4]])])
    assert (folded.keys, folded.values, folded.places) == (["a", "b", "c"], [4, 2, 4], [0, 1, 2])


@pytest.mark.parametrize("found", [[1], ["ab"], [("a", 1, 2)], [([], 1)], [(np.zeros(2), 1)], [(object(), 1)]])
def test_result_without_a_valid_key_is_refused(found: list[Any]) -> None:
    with pytest.raises(DataError, match=r"no pair|cannot be a key"):
        fold_pairs(as_given, add, 2, [found])


def test_keys_that_only_a_dict_confuses_are_refused() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2025, 10, 26, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    with pytest.raises(DataError, match="Use times in UTC"):
        fold_to_dict(add, fold_pairs(as_given, add, 1, [[(first, 1), (second, 2)]]))
    other = first.astimezone(timezone(timedelta(hours=3)))
    assert list(fold_to_dict(add, fold_pairs(as_given, add, 1, [[(first, 1), (other, 2)]])).values()) == [3]
