from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.shuffling.key_order import argsort, order
from treadle.primitives.shuffling.keys import identity
from treadle.primitives.testing.keys import arrow_arrays, keys, numpy_arrays, simple_keys

ASCENDING = [
    None,
    float("-inf"),
    -(10**400),
    -1,
    False,
    0.5,
    True,
    2**53,
    2**53 + 1,
    float(2**53 + 2),
    10**400,
    float("inf"),
    float("nan"),
    "",
    "a",
    "a\0",
    "b",
    "\uffff",
    "\U00010000",
    b"",
    b"a",
    b"\xff",
    date(1, 1, 1),
    date(2024, 1, 1),
    datetime(1, 1, 1),
    datetime(2024, 1, 1),
    datetime(2024, 1, 1, tzinfo=UTC),
    UUID(int=1),
    UUID(int=2**127),
    (),
    (None,),
    (1,),
    (1, None),
    (1, "a"),
    (float("nan"),),
    ("a",),
    ((),),
]


def _by_scalars(found: Any) -> list[int]:
    ranked = [order(key) for key in found]
    return sorted(range(len(ranked)), key=ranked.__getitem__)


def test_classes_of_keys_sort_in_their_documented_order() -> None:
    shuffled = [ASCENDING[place] for place in np.random.default_rng(1).permutation(len(ASCENDING))]
    assert [identity(shuffled[place]) for place in argsort(shuffled)] == [identity(key) for key in ASCENDING]


@given(keys(), keys())
def test_keys_of_equal_order_are_the_same_key(a: Any, b: Any) -> None:
    assert (order(a) == order(b)) == (identity(a) == identity(b))


@given(st.lists(keys(), max_size=8))
def test_any_keys_can_be_sorted(found: list[Any]) -> None:
    ranked = [order(found[place]) for place in argsort(found)]
    assert ranked == sorted(ranked)


@given(st.one_of([st.lists(s, max_size=8) for s in (st.integers(), st.floats(), st.text(), st.dates(), st.uuids())]))
def test_list_of_one_type_sorts_as_its_keys_do(found: list[Any]) -> None:
    assert argsort(found) == _by_scalars(found)


@given(st.lists(simple_keys(), min_size=1, max_size=4), st.data())
def test_sort_of_a_list_is_stable(few: list[Any], data: st.DataObject) -> None:
    found = data.draw(st.lists(st.sampled_from(few), max_size=12))
    assert argsort(found) == _by_scalars(found)


@given(numpy_arrays())
def test_numpy_array_sorts_as_its_elements_do(array: Any) -> None:
    assert list(argsort(array)) == _by_scalars(array)


@given(arrow_arrays())
def test_arrow_array_sorts_as_its_elements_do(array: Any) -> None:
    assert list(argsort(array)) == _by_scalars(array)


@given(st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["a", "b"])), max_size=12))
def test_columns_sort_as_tuples_do(rows: list[tuple[Any, Any]]) -> None:
    table = pa.StructArray.from_arrays(
        [pa.array([a for a, _ in rows], pa.int8()), pa.array([b for _, b in rows], pa.string()).dictionary_encode()],
        names=["a", "b"],
    )
    assert list(argsort(table)) == _by_scalars(rows)


def test_nulls_of_a_dictionary_are_one_key_whether_index_or_value() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1, 2, None]), pa.array(["b", None, "b"]))
    assert list(argsort(array)) == [0, 1, 3, 5, 2, 4]


def test_numpy_sort_is_stable_on_equal_bytes() -> None:
    array = np.array([b"b", b"a", b"b", b"a"] * 50, dtype="V1")
    assert list(argsort(array)) == [*range(1, 200, 2), *range(0, 200, 2)]
