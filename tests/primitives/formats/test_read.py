from __future__ import annotations

import csv
import gzip
import io
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.primitives.errors import DataError, MissingError, UsageError
from treadle.primitives.formats import FileSplit, Format, ReadOptions, plan_splits, read_split, read_text
from treadle.primitives.stores.input_files import list_files
from treadle.primitives.stores.store import Store

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
sizes = st.integers(1, 40)
chunks = st.sampled_from(
    ["", "a", "\x00", "\n", "\r\n", "\r", "é", "😀", "\ufeff", "x" * 30, "\x0b", "\u2028", "\x85", " "]
)
texts = st.lists(chunks, max_size=30).map("".join)


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return tmp_path.as_uri() if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def _splits(place: str, data: bytes, options: ReadOptions, split: int) -> list[FileSplit]:
    Store.open(place).put("input", data)
    [info] = list_files(f"{place}/input")
    return plan_splits(info, options, split)


def _read(place: str, data: bytes, options: ReadOptions, split: int = 1 << 30) -> list[Any]:
    return [read_split(one)[1] for one in _splits(place, data, options, split)]


def _records(place: str, data: bytes, options: ReadOptions, split: int = 1 << 30) -> list[Any]:
    return [record for part in _read(place, data, options, split) for record in part]


# -- text ------------------------------------------------------------------------------------------------------------


def _lines(text: str) -> list[str]:
    """Lines as io's own reader splits them: at \n only, by its setting."""
    return [line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line for line in io.StringIO(text)]


@many
@given(text=texts, split=sizes)
def test_text_is_the_same_lines_at_any_split_size(place: str, text: str, split: int) -> None:
    assert _records(place, text.encode(), ReadOptions("text"), split) == _lines(text)


@many
@given(text=texts, split=sizes)
def test_whole_texts_of_splits_join_to_the_file(place: str, text: str, split: int) -> None:
    assert "".join(map(read_text, _splits(place, text.encode(), ReadOptions("text"), split))) == text


@many
@given(text=texts, split=sizes)
def test_a_line_belongs_to_the_split_in_which_it_begins(place: str, text: str, split: int) -> None:
    data = text.encode()
    begins = [0] * bool(data) + [i + 1 for i, byte in enumerate(data[:-1]) if byte == 10]
    for one in _splits(place, data, ReadOptions("text"), split):
        assert len(read_split(one)[1]) == sum(one.start <= begin < one.stop for begin in begins)


def test_a_line_longer_than_many_splits_and_reads_is_whole(place: str) -> None:
    lines = ["a", "x" * 700_001, "b" * 70_000, "c"]
    assert _records(place, "\n".join(lines).encode(), ReadOptions("text"), 50_000) == lines


def test_splits_are_balanced_and_an_empty_file_is_one_empty_split(place: str) -> None:
    splits = _splits(place, b"x" * 1000, ReadOptions("text"), 300)
    assert [(one.start, one.stop) for one in splits] == [(0, 250), (250, 500), (500, 750), (750, 1000)]
    assert _read(place, b"", ReadOptions("text"), 300) == [[]]


def test_text_that_is_not_utf_8_is_refused_with_file_and_offset(place: str) -> None:
    splits = _splits(place, b"good\nalso\nb\xffd\n", ReadOptions("text"), 5)
    with pytest.raises(DataError, match=r"input is not UTF-8 at byte 11"):
        [read_split(one) for one in splits]


# -- gzip ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["text", "jsonl", "csv"])
def test_gzip_is_one_split_and_reads_like_the_file(place: str, format: Format) -> None:
    data = b"1\n2\n3\n"
    packed = _read(place, gzip.compress(data), ReadOptions(format, gzip=True), 2)
    assert len(packed) == 1
    assert packed[0] == _records(place, data, ReadOptions(format), 2)


@pytest.mark.parametrize("cut", [5, 9, 20, -1])
def test_truncated_gzip_is_refused_by_name(place: str, cut: int) -> None:
    with pytest.raises(DataError, match="input is cut off"):
        _read(place, gzip.compress(b"many words " * 20)[:cut], ReadOptions("text", gzip=True))


def test_file_that_is_not_gzip_is_refused_by_name(place: str) -> None:
    with pytest.raises(DataError, match="input is not sound gzip"):
        _read(place, b"plain text", ReadOptions("text", gzip=True))


# -- jsonl -----------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@many
@given(values=st.lists(json_values, max_size=8), end=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]), split=sizes)
def test_jsonl_is_the_same_values_at_any_split_size(place: str, values: list[Any], end: str, split: int) -> None:
    data = end.join(json.dumps(value, ensure_ascii=False) for value in values).encode()
    assert _records(place, data, ReadOptions("jsonl"), split) == values


@pytest.mark.parametrize("bad", ["{", "NaN", "1 2", "[1,", "\ufeff1", '"\\ud800"', "1e999", "[" * 100_000])
def test_a_bad_json_line_is_named_by_number_and_offset(place: str, bad: str) -> None:
    with pytest.raises(DataError, match=r"input, line 3, which begins at byte 9, is not JSON"):
        _read(place, f'{{"a":1}}\n\n{bad}\n2'.encode(), ReadOptions("jsonl"))


# -- csv -------------------------------------------------------------------------------------------------------------

cells = st.text(st.sampled_from('ab,;"\n\ré '), max_size=4)


@many
@given(rows=st.lists(st.lists(cells, min_size=2, max_size=2), max_size=6), split=sizes, header=st.booleans())
def test_csv_is_the_same_rows_at_any_split_size(place: str, rows: list[list[str]], split: int, header: bool) -> None:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["x", "y"], *rows])
    records = _records(place, file.getvalue().encode(), ReadOptions("csv", header=header), split)
    assert records == ([{"x": x, "y": y} for x, y in rows] if header else [("x", "y"), *map(tuple, rows)])


@many
@given(rows=st.lists(st.tuples(st.text("abé ", max_size=9), st.text("1é", max_size=3)), max_size=9), split=sizes)
def test_csv_without_quotes_is_split_and_every_split_knows_the_header(
    place: str, rows: list[tuple[str, str]], split: int
) -> None:
    data = "\ufeffx;y\r\n" + "".join(f"{x};{y}\r\n" for x, y in rows)
    splits = _splits(place, data.encode(), ReadOptions("csv", delimiter=";"), split)
    assert len(splits) == -(-len(data.encode()) // split)
    assert [record for one in splits for record in read_split(one)[1]] == [{"x": x, "y": y} for x, y in rows]


def test_csv_with_a_quote_anywhere_is_one_split(place: str) -> None:
    data = b"a,b\n" + b"1,2\n" * 100 + b'3,"4\n5"\n'
    assert len(_splits(place, data, ReadOptions("csv"), 10)) == 1
    assert _records(place, data, ReadOptions("csv"), 10)[-1] == {"a": "3", "b": "4\n5"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,b\n1\n", "line 2, has 1 fields, the header has 2"),
        (b"a,a\n1,2\n", "does not name its columns"),
        (b"\na,b\n", "does not name its columns"),
        (b'a\n"1\n', "is not CSV: unexpected end of data"),
        (b"a\n1\r2\n", "is not CSV: new-line character"),
        (b"a\n\xff\n", "not UTF-8 at byte 2"),
    ],
)
def test_broken_csv_is_refused_by_name(place: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _read(place, data, ReadOptions("csv"))


def test_a_csv_field_may_be_long(place: str) -> None:
    assert _read(place, b"a\n" + b"x" * 200_000, ReadOptions("csv")) == [[{"a": "x" * 200_000}]]


# -- arrays ----------------------------------------------------------------------------------------------------------


@many
@given(rows=st.integers(0, 20), width=st.integers(1, 5), split=sizes)
def test_fixed_is_the_same_rows_at_any_split_size(place: str, rows: int, width: int, split: int) -> None:
    data = bytes(range(rows * width))
    parts = _read(place, data, ReadOptions("fixed", record_bytes=width), split)
    assert all(part.shape == (len(part), width) and part.dtype == np.uint8 for part in parts)
    assert b"".join(part.tobytes() for part in parts) == data
    assert len(parts) == max(1, min(rows, -(-len(data) // split)))


def test_a_fixed_file_with_a_rest_is_refused_with_both_numbers(place: str) -> None:
    with pytest.raises(DataError, match="input has 10 bytes, which is no multiple of recordBytes 4"):
        _splits(place, b"0123456789", ReadOptions("fixed", record_bytes=4), 100)


def test_arrays_of_a_local_file_are_read_only_views_of_one_mapping(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100))
    [info] = list_files("a.npy", tmp_path)
    array = read_split(plan_splits(info, ReadOptions("npy"), 100)[1])[1]
    assert not array.flags.owndata
    assert not array.flags.writeable


def _npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@many
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["<f8", ">i4", "u1", "<U3", "M8[ns]", "V2", [("a", "<i4"), ("é", "<f4", (2,))]]),
    fortran=st.booleans(),
    split=sizes,
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_npy_is_the_same_rows_at_any_split_size(
    place: str, shape: tuple[int, ...], dtype: Any, fortran: bool, split: int
) -> None:
    array = np.zeros(shape, dtype)
    array.reshape(-1).view("u1")[:] = np.arange(array.nbytes) % 64 if array.dtype.kind != "U" else 0
    parts = _read(place, _npy(np.asfortranarray(array) if fortran else array), ReadOptions("npy"), split)
    whole = np.concatenate(parts)
    assert all(part.dtype == array.dtype for part in parts)
    assert whole.shape == array.shape
    assert whole.astype(array.dtype).tobytes() == array.tobytes()


def test_npy_of_items_without_bytes_has_its_rows(place: str) -> None:
    (rows,) = _read(place, _npy(np.zeros((3, 2), "V0")), ReadOptions("npy"))
    assert (rows.dtype, rows.shape) == (np.dtype("V0"), (3, 2))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an npy file"),
        (b"\x93NUMPY\x01", "not an npy file"),
        (b"not an npy file at all", "not an npy file"),
        (_npy(np.arange(9))[:-1], "header promises 200"),
        (_npy(np.arange(9)) + b"x", "header promises 200"),
        (_npy(np.arange(9)).replace(b"'descr'", b"'dexcr'"), "header of .* cannot be read"),
        (_npy(np.array([object()]), allow_pickle=True), "holds Python objects"),
        (_npy(np.array(1.5)), "holds a single value"),
    ],
)
def test_a_broken_npy_file_is_refused_when_planned(place: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _splits(place, data, ReadOptions("npy"), 100)


# -- parquet ---------------------------------------------------------------------------------------------------------


@many
@given(rows=st.integers(0, 50), group=st.integers(1, 20), split=st.integers(1, 2000))
def test_parquet_is_the_same_table_at_any_split_size(place: str, rows: int, group: int, split: int) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64()), "s": [f"é{i}" for i in range(rows)]})
    table = table.cast(pa.schema([("n", pa.int64()), ("s", pa.string())]))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group)
    parts = _read(place, sink.getvalue().to_pybytes(), ReadOptions("parquet"), split)
    assert pa.concat_tables(parts).equals(table)
    assert rows == 0 or all(part.num_rows for part in parts)


def test_parquet_without_row_groups_is_one_empty_table(place: str) -> None:
    file, schema = io.BytesIO(), pa.schema([("a", pa.int64())])
    pq.ParquetWriter(file, schema).close()
    assert _read(place, file.getvalue(), ReadOptions("parquet")) == [schema.empty_table()]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet at all", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_file_that_is_not_parquet_is_refused_by_name(place: str, data: bytes) -> None:
    with pytest.raises(DataError, match="input is not a sound Parquet file"):
        _splits(place, data, ReadOptions("parquet"), 100)


# -- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["text", "jsonl", "csv", "npy", "fixed", "parquet"])
def test_a_file_that_changed_after_the_listing_is_refused(place: str, format: Format) -> None:
    data = {"npy": _npy(np.arange(3)), "parquet": pa.BufferOutputStream()}.get(format, b"1\n2\n")
    if format == "parquet":
        pq.write_table(pa.table({"a": [1]}), data)
        data = data.getvalue().to_pybytes()
    splits = _splits(place, data, ReadOptions(format, record_bytes=2), 100)
    Store.open(place).put("input", data + b"more")
    with pytest.raises(UsageError, match="input changed since the run started"):
        read_split(splits[0])
    Store.open(place).delete(["input"])
    with pytest.raises(MissingError, match="input is gone"):
        read_split(splits[0])
