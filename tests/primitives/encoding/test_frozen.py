"""Arrays in records are made read-only. Everything else is left unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.encoding.read_only import sealed

_leaves = st.none() | st.integers() | st.text(max_size=3) | st.builds(np.arange, st.integers(0, 3))
_records = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [array for item in inner for array in _arrays(item)]


@given(st.lists(_records, max_size=5))
def test_no_array_of_a_sealed_record_can_be_written_to(records: list[Any]) -> None:
    before = repr(records)
    given = sealed(records)
    assert not any(array.flags.writeable for array in _arrays(given))
    assert all(array.flags.writeable for array in _arrays(records))
    assert (repr(given), repr(records)) == (before, before)
    assert (given is records) == (not _arrays(records))
    assert sealed(given) is given


def test_a_list_that_holds_itself_is_left_alone() -> None:
    record: list[Any] = [1]
    record.append(record)
    assert sealed([record])[0] is record
