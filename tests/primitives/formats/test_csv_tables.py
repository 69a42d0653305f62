"""CSV of tables, column by column, against CSV of their rows."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.primitives.errors import DataError
from treadle.primitives.formats import WriteOptions, csv_tables, encode_part
from treadle.primitives.formats.csv import encode_csv
from treadle.primitives.formats.rows import tabulate

_texts = st.text(st.sampled_from('ab,;|^]\\-x\t"\r\n\ufeff\x00é😀'), max_size=4)
_TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): _texts,
    pa.large_string(): _texts,
    pa.string_view(): _texts,
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", 'b"', ""]),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.null(): st.none(),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.decimal128(9, 2): st.decimals(-999, 999, places=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Tables with any columns, in chunks of any length, perhaps sliced."""
    kinds = draw(st.lists(st.sampled_from(list(_TYPES)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(st.none() | _TYPES[kind] for kind in kinds)), max_size=8))
    schema = pa.schema([(f"c{index}", kind) for index, kind in enumerate(kinds)])
    cut = draw(st.integers(0, len(rows)))
    parts = [
        pa.table([pa.array([row[index] for row in some], kind) for index, kind in enumerate(kinds)], schema=schema)
        for some in (rows[:cut], rows[cut:])
    ]
    start = draw(st.integers(0, len(rows)))
    return pa.concat_tables(parts).slice(start, draw(st.integers(0, len(rows))))


def _by_rows(table: Any, options: WriteOptions) -> bytes:
    return encode_csv(tabulate("table", table, [name for name, _ in options.columns]), options).encode()


def _encoded(table: Any, options: WriteOptions) -> bytes:
    return b"".join(encode_part("table", table, options))


@settings(deadline=None)
@given(table=tables(), delimiter=st.sampled_from(',;\t|^]\\- x"é\x00.'), header=st.booleans(), turned=st.booleans())
def test_a_table_has_the_bytes_of_its_rows(table: pa.Table, delimiter: str, header: bool, turned: bool) -> None:
    names = table.column_names[::-1] if turned else []
    options = WriteOptions("csv", tuple((name, "string") for name in names), header, delimiter)
    assert b"".join(csv_tables.encode_csv_table(table, options)) == _by_rows(table, options)


def test_batches_of_rows_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "_ROWS", 3)
    table = pa.table({"word": ["a", "b,", None, "", "c"] * 4, "n": range(20)})
    assert _encoded(table, WriteOptions("csv")) == _by_rows(table, WriteOptions("csv"))


def test_a_record_batch_is_a_table() -> None:
    batch = pa.record_batch({"word": ["a", "b"], "n": [Decimal("1.50"), None]})
    assert _encoded(batch, WriteOptions("csv")) == b"word,n\na,1.50\nb,\n"


def test_a_table_without_rows_has_its_header() -> None:
    assert _encoded(pa.table({"a": pa.array([], pa.string())}), WriteOptions("csv")) == b"a\n"
    assert _encoded(pa.table({"a": pa.array([], pa.string())}), WriteOptions("csv", header=False)) == b""


def test_a_value_that_does_not_fit_is_named_by_its_record() -> None:
    table = pa.table({"a": [None, None, [1]], "b": [None, b"x", b"y"]})
    with pytest.raises(DataError, match="record 1: CSV has no text for a value of type bytes"):
        _encoded(table, WriteOptions("csv"))


def test_columns_that_are_not_there_are_named() -> None:
    with pytest.raises(DataError, match="the table has the columns a; declared are b"):
        _encoded(pa.table({"a": [1]}), WriteOptions("csv", (("b", "string"),)))
