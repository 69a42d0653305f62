"""A split read piece by piece gives the same records and errors as in one piece."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.primitives.encoding.codec import concat
from treadle.primitives.errors import DataError, MissingError, StoreError, UsageError
from treadle.primitives.formats import (
    FileSplit,
    Format,
    ReadOptions,
    plan_splits,
    read_pieces,
    read_split,
)
from treadle.primitives.stores.input_files import list_files
from treadle.primitives.stores.store import Store

many = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
sizes = st.integers(1, 60)
texts = st.lists(
    st.sampled_from(["", "a", "\x00", "\n", "\r\n", "\r", "é", "😀", "\ufeff", "x" * 30, "\u2028"]), max_size=30
)
FORMATS: list[Format] = ["text", "jsonl", "csv", "npy", "fixed", "parquet"]


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return tmp_path.as_uri() if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def splits(place: str, data: bytes, options: ReadOptions, split: int = 1 << 30) -> list[FileSplit]:
    Store.open(place).put("input", gzip.compress(data) if options.gzip else data)
    [info] = list_files(f"{place}/input")
    return plan_splits(info, options, split)


def pieces(split: FileSplit, size: int) -> list[Any]:
    return list(read_pieces(split, size)[1])


def check(split: FileSplit, size: int) -> None:
    kind, whole = read_split(split)
    found = pieces(split, size)
    assert kind == "objects" or found
    together = concat(kind, found or [[]])
    if kind == "array":
        assert (together.dtype, together.shape, together.tobytes()) == (whole.dtype, whole.shape, whole.tobytes())
        assert not together.flags.writeable
    else:
        assert together == whole
        assert kind == "objects" or together.schema.equals(whole.schema, check_metadata=True)


@many
@given(text=texts.map("".join), split=sizes, size=sizes, packed=st.booleans())
@pytest.mark.parametrize("format", ["text", "csv"])
def test_lines(place: str, format: Format, text: str, split: int, size: int, packed: bool) -> None:
    data = text.encode() if format == "text" else text.replace("\r", "").encode()
    for one in splits(place, data, ReadOptions(format, gzip=packed, header=False), split):
        check(one, size)


@many
@given(text=texts.map("".join), split=sizes, size=sizes, packed=st.booleans())
def test_lines_of_tables_equal_lines_of_lists(place: str, text: str, split: int, size: int, packed: bool) -> None:
    for one in splits(place, text.encode(), ReadOptions("text", gzip=packed, table=True), split):
        check(one, size)
        _, table = read_split(one)
        as_list = msgspec.structs.replace(one, options=ReadOptions("text", gzip=packed))
        assert table.equals(pa.table({"line": pa.array(read_split(as_list)[1], pa.large_string())}))


@pytest.mark.parametrize("size", [1, 100])
def test_table_of_lines_outside_utf_8_is_refused_with_the_place(place: str, size: int) -> None:
    (split,) = splits(place, b"good\nalso\nb\xffd\n", ReadOptions("text", table=True))
    with pytest.raises(DataError, match=r"input is not UTF-8 at byte 11"):
        pieces(split, size)


@many
@given(
    rows=st.lists(st.lists(st.text(st.sampled_from('ab,"\n\ré '), max_size=4), min_size=2, max_size=2), max_size=6),
    size=sizes,
    packed=st.booleans(),
)
def test_rows_with_line_ends_in_them(place: str, rows: list[list[str]], size: int, packed: bool) -> None:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["x", "y"], *rows])
    [one] = splits(place, file.getvalue().encode(), ReadOptions("csv", gzip=packed))
    assert [row for piece in pieces(one, size) for row in piece] == [{"x": x, "y": y} for x, y in rows]


def test_reader_may_change_records_before_it_asks_for_more(place: str) -> None:
    [one] = splits(place, b"x,y\n" + b"1,2\n" * 9, ReadOptions("csv"))
    found = 0
    for piece in read_pieces(one, 100)[1]:
        for record in piece:
            record |= {"x": 1, "more": None}
            found += 1
    assert found == 9


@many
@given(
    values=st.lists(st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=3), max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]),
    split=sizes,
    size=sizes,
)
def test_json_lines(place: str, values: list[Any], end: str, split: int, size: int) -> None:
    data = end.join(json.dumps(value, ensure_ascii=False) for value in values).encode()
    for one in splits(place, data, ReadOptions("jsonl"), split):
        check(one, size)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@many
@given(
    rows=st.integers(0, 12),
    width=st.integers(0, 3),
    fortran=st.booleans(),
    packed=st.booleans(),
    split=sizes,
    size=sizes,
)
def test_arrays(place: str, rows: int, width: int, fortran: bool, packed: bool, split: int, size: int) -> None:
    array = np.arange(rows * width, dtype="<i4").reshape(rows, width)
    for one in splits(
        place, npy(np.asfortranarray(array) if fortran else array), ReadOptions("npy", gzip=packed), split
    ):
        check(one, size)
    for one in splits(place, array.tobytes(), ReadOptions("fixed", 4 * max(width, 1), gzip=packed), split):
        check(one, size)


def parquet(table: pa.Table, group: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@many
@given(rows=st.integers(0, 50), group=st.integers(1, 20), split=st.integers(1, 2000), size=st.integers(1, 900))
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_tables(place: str, rows: int, group: int, split: int, size: int, packed: bool) -> None:
    table = pa.table(
        {
            "n": pa.array([None if i % 3 else i for i in range(rows)], pa.int64()),
            "s": pa.array([f"é{i % 4}" for i in range(rows)], pa.string()).dictionary_encode(),
            "l": pa.array([[i, None] * (i % 3) for i in range(rows)], pa.list_(pa.int16())),
            "t": pa.array(
                [{"a": i % 2 == 0, "b": "x" * i} for i in range(rows)], pa.struct({"a": "bool", "b": "string"})
            ),
        },
        metadata={"who": "we"},
    )
    data = parquet(table, group)
    for one in splits(place, data, ReadOptions("parquet", gzip=packed), split):
        check(one, size)
        assert rows == 0 or all(piece.num_rows for piece in pieces(one, size))


def test_a_large_row_group_comes_a_few_rows_at_a_time(place: str) -> None:
    """This also holds if a dictionary makes the file small."""
    table = pa.table({"n": pa.array([7] * 10_000, pa.int64()), "s": ["word"] * 10_000})
    [one] = splits(place, parquet(table, 10_000), ReadOptions("parquet"))
    found = pieces(one, 8_000)
    assert len(found) > 10
    assert max(piece.num_rows for piece in found) <= 1000
    assert len(pieces(one, 1 << 20)) == 1


@pytest.mark.parametrize(
    ("format", "data", "message"),
    [
        ("text", b"good\n" * 99 + b"b\xff\n", "input is not UTF-8 at byte 496"),
        ("jsonl", b"[1]\n\n" * 99 + b"{\n2\n", "input, line 199, which begins at byte 495, is not JSON"),
        ("csv", b"a,b\n" + b"1,2\n" * 99 + b"1\n", "input, line 101, has 1 fields"),
        ("csv", b"a,b\n" + b"1,2\n" * 99 + b'1,"2\n', "input, line 101, is not CSV"),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_error_has_its_position_in_the_whole_after_the_good_records(
    place: str, format: Format, data: bytes, message: str, packed: bool
) -> None:
    [one] = splits(place, data, ReadOptions(format, gzip=packed))
    with pytest.raises(DataError, match=message):
        read_split(one)
    found = read_pieces(one, 40)[1]
    assert next(found)
    with pytest.raises(DataError, match=message):
        list(found)


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_read_before_the_first_piece_is_wanted(place: str, format: Format) -> None:
    data = {"npy": npy(np.arange(3)), "parquet": parquet(pa.table({"a": [1]}), 1)}.get(format, b"1\n2\n")
    [one] = splits(place, data, ReadOptions(format, record_bytes=2))
    store = Store.open(place)
    store.delete(["input"])
    found = read_pieces(one, 1)[1]
    with pytest.raises(MissingError, match="input is gone"):
        next(found)
    store.put("input", data + b"more")
    with pytest.raises(UsageError, match="input changed since the run started"):
        list(read_pieces(one, 1)[1])


@pytest.mark.parametrize("format", ["text", "fixed"])
def test_gzip_of_several_members_is_read_as_one(place: str, format: Format) -> None:
    members = [gzip.compress(b"12\n" * count) for count in (1, 0, 999, 3)]
    Store.open(place).put("input", b"".join(members) + bytes(512))
    [info] = list_files(f"{place}/input")
    [one] = plan_splits(info, ReadOptions(format, 3, gzip=True), 10)
    assert sum(map(len, pieces(one, 100))) == 1003


def test_failing_disk_is_not_reported_as_a_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = splits(tmp_path.as_uri(), parquet(pa.table({"a": [1]}), 1), ReadOptions("parquet"))

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", failing)
    with pytest.raises(StoreError, match="Input/output error") as caught:
        read_split(one)
    assert caught.value.retryable


def test_table_too_large_for_memory_is_not_reported_as_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = splits(tmp_path.as_uri(), parquet(pa.table({"a": [1]}), 1), ReadOptions("parquet"))

    def refused(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc failed")

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", refused)
    with pytest.raises(MemoryError):
        read_split(one)
