"""The size of a table does not depend on its layout."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.primitives.shuffling.partitioning import bytes_of_rows, cut
from treadle.primitives.shuffling.table_size import table_bytes

TYPES: list[Any] = [
    pa.null(),
    pa.bool_(),
    pa.int16(),
    pa.float64(),
    pa.timestamp("us"),
    pa.string(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary_view(),
    pa.binary(3),
    pa.list_(pa.string()),
    pa.list_(pa.int8(), 2),
    pa.large_list(pa.list_(pa.int32())),
    pa.map_(pa.string(), pa.int64()),
    pa.struct({"a": pa.string(), "b": pa.list_(pa.bool_())}),
    pa.dictionary(pa.int32(), pa.string()),
]


def value(kind: Any, number: int) -> Any:
    """A value of the type with its own size. Every fifth is null."""
    if number % 5 == 4 or pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, number + index) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(str(one), one) for one in range(number % 3)]
    if pa.types.is_nested(kind):
        count = 2 if pa.types.is_fixed_size_list(kind) else number % 4
        return [value(kind.value_type, number + index) for index in range(count)]
    if pa.types.is_fixed_size_binary(kind):
        return b"abc"
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return b"x" * (number % 7)
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    return pa.scalar(number % 100, pa.int64()).cast(pa.string() if _is_text(kind) else kind).as_py()


def _is_text(kind: Any) -> bool:
    return any(of(kind) for of in (pa.types.is_string, pa.types.is_string_view, pa.types.is_dictionary))


def table_of(kind: Any, start: int, stop: int) -> pa.Table:
    values = [value(kind, number) for number in range(start, stop)]
    if pa.types.is_dictionary(kind):
        return pa.table({"c": pa.array(values, kind.value_type).dictionary_encode()})
    return pa.table({"c": pa.array(values, kind)})


@pytest.mark.parametrize("kind", TYPES, ids=str)
@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 30), max_size=4).map(sorted))
def test_pieces_add_up_however_they_were_made(kind: Any, cuts: list[int]) -> None:
    bounds = list(zip([0, *cuts], [*cuts, 30], strict=True))
    whole = table_of(kind, 0, 30)
    made = [table_of(kind, start, stop) for start, stop in bounds]
    cut_out = [whole.slice(start, stop - start) for start, stop in bounds]
    assert sum(map(table_bytes, made)) == table_bytes(whole)
    assert sum(map(table_bytes, cut_out)) == table_bytes(whole)
    assert table_bytes(pa.concat_tables(made)) == table_bytes(whole)
    assert [chunk.num_rows for chunk in cut("table", pa.concat_tables(made), max_bytes=64)] == [
        chunk.num_rows for chunk in cut("table", whole, max_bytes=64)
    ]


def test_it_is_about_what_arrow_says() -> None:
    table = pa.table({"n": list(range(1000)), "s": [str(n) for n in range(1000)], "f": [0.5] * 1000})
    assert 0 <= table.nbytes - table_bytes(table) <= 64
    assert bytes_of_rows("table", table) == table_bytes(table)
