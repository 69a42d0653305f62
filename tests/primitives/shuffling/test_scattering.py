"""Rows are scattered to their targets in their order, for any number relative to the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.shuffling import scatter
from treadle.primitives.shuffling.scatter import scatter_rows

ROWS = {
    "numbers": lambda count: np.arange(count),
    "rows of two": lambda count: np.arange(2 * count, dtype="f4").reshape(count, 2),
    "bytes": lambda count: np.array([b"%d" % index for index in range(count)], dtype="S100"),
    "fields": lambda count: np.array([(index, index / 2) for index in range(count)], dtype=[("a", "i4"), ("b", "f8")]),
    "a view": lambda count: np.arange(3 * count)[::3],
    "without bytes": lambda count: np.empty((count, 0)),
}


@pytest.fixture(params=[1 << 19, 64], ids=["at once", "in chunks"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "_CHUNK_BYTES", request.param)
    monkeypatch.setattr(scatter, "_TABLE_BYTES", request.param)
    monkeypatch.setattr(scatter, "_LEAST", 1)


def expected(value: Any, targets: list[int], partitions: int) -> list[Any]:
    return [value[[index for index, one in enumerate(targets) if one == target]] for target in range(partitions)]


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
@given(st.data())
def test_each_target_gets_its_rows_in_their_order(make: Any, data: st.DataObject) -> None:
    partitions = data.draw(st.sampled_from([1, 2, 3, 8, 300]))
    targets = data.draw(st.lists(st.integers(0, partitions - 1), max_size=60))
    value = make(len(targets))
    parts = scatter_rows("array", value, targets, partitions)
    for part, wanted in zip(parts, expected(value, targets, partitions), strict=True):
        assert part.dtype == wanted.dtype
        assert part.shape == wanted.shape
        np.testing.assert_array_equal(part, wanted)


def table_of(count: int) -> pa.Table:
    """Two chunks with different columns."""
    names = pa.array([f"name {index % 3}" for index in range(count)]).dictionary_encode()
    nested = pa.array([[index] * (index % 3) or None for index in range(count)], pa.list_(pa.int64()))
    table = pa.table({"row": pa.array(range(count), pa.int64()), "name": names, "nested": nested})
    return pa.concat_tables([table.slice(0, count // 2), table.slice(count // 2)])


@pytest.mark.usefixtures("_chunks")
@given(st.data())
def test_rows_of_a_table_are_scattered_likewise(data: st.DataObject) -> None:
    partitions = data.draw(st.sampled_from([1, 3, 300]))
    targets = data.draw(st.lists(st.integers(0, partitions - 1), max_size=60))
    table = table_of(len(targets))
    parts = scatter_rows("table", table, np.array(targets, dtype=np.int64), partitions)
    assert len(parts) == partitions
    for target, part in enumerate(parts):
        assert part.schema == table.schema
        assert part.to_pylist() == [row for row, one in zip(table.to_pylist(), targets, strict=True) if one == target]


@pytest.mark.parametrize("partitions", [256, 257, 65_536, 65_537])
def test_the_last_target_is_within_the_numbers_that_are_sorted(partitions: int) -> None:
    parts = scatter_rows("array", np.arange(3), [partitions - 1, 0, partitions - 1], partitions)
    assert parts[0].tolist() == [1]
    assert parts[-1].tolist() == [0, 2]
