"""Keys, records and memory budgets for tests of data larger than memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from treadle.primitives.encoding import codec
from treadle.primitives.shuffling.keys import identity

KEYS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan"), 2**70, "a", "b", "", b"a"]),
    st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"])),
    st.sampled_from([datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)]),
)
PAIRS = st.lists(st.tuples(KEYS, st.integers(0, 99)), max_size=40)
ROOMS = st.sampled_from([1, 200, 700, 3000])
"""Bytes: one record, a few records, some tens of them, all of them."""


def pieces_of(records: list[Any], size: int) -> list[list[Any]]:
    """The records as lists of at most `size`."""
    return [records[start : start + size] for start in range(0, len(records), size)]


def known(value: Any) -> Any:
    """A value that equals another exactly if both are the same data, types and NaN included."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [known(one) for one in value]
    if isinstance(value, dict):
        return "dict", [(known(key), known(one)) for key, one in value.items()]
    if isinstance(value, memoryview):  # an encoded part, in a bundle
        return known(codec.decode(value))
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, value.tolist()
    if isinstance(value, pa.Table):
        return "table", str(value.schema), value.to_pylist()
    return type(value).__name__, repr(value) if isinstance(value, float) else identity(value)
