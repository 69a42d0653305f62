"""Values by value: with and without cloudpickle they come back the same."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.encoding.by_value import pack, unpack

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
PLAIN = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(ATOMS.filter(lambda one: one == one), inner)
    ),
)


class Pair(NamedTuple):
    left: Any
    right: Any


class Outside:
    """An object that `refer` names."""


OUTSIDE = Outside()


def refer(found: object) -> object:
    return "outside" if found is OUTSIDE else None


@given(PLAIN)
def test_plain_data_comes_back_the_same(value: object) -> None:
    assert repr(unpack(pack(value, refer), lambda name: pytest.fail(f"{name} is not outside"))) == repr(value)


@given(PLAIN)
def test_object_outside_is_found_beside_any_plain_data(value: object) -> None:
    for holder in ([value, OUTSIDE], {"a": (value, [OUTSIDE])}, Pair(value, OUTSIDE)):
        assert repr(unpack(pack(holder, refer), lambda _: OUTSIDE)) == repr(holder)


def test_functions_among_plain_data_are_taken_by_value() -> None:
    times = 3
    packed = pack([(1, {"a": lambda number: number * times})])
    assert unpack(packed)[0][1]["a"](2) == 6


def test_known_tuples_keep_their_class() -> None:
    assert unpack(pack([Pair(1, "a")], known=frozenset({Pair}))) == [Pair(1, "a")]
    assert type(unpack(pack([Pair(1, "a")], known=frozenset({Pair})))[0]) is Pair


def test_list_that_holds_itself_comes_back() -> None:
    value: list[Any] = [1]
    value.append(value)
    found = unpack(pack(value))
    assert found[1] is found


def test_one_object_in_two_places_stays_one() -> None:
    shared = [1]
    found = unpack(pack([shared, (shared,)]))
    assert found[0] is found[1][0]


def test_name_without_what_resolves_it_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError):
        unpack(pack([OUTSIDE], refer))
