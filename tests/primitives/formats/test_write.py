from __future__ import annotations

import datetime
import io
import math
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.formats import (
    Format,
    ReadOptions,
    WriteOptions,
    csv,
    encode_part,
    encode_pieces,
    plan_splits,
    read_split,
    suffix,
    tables,
    write_part,
)
from treadle.primitives.stores.input_files import list_files

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = (("word", "string"), ("n", "int64"))


def _encode(kind: Kind, value: Any, format: Format, **options: Any) -> bytes:
    return b"".join(encode_part(kind, value, WriteOptions(format, **options)))


def _back(folder: Path, data: bytes, options: ReadOptions) -> Any:
    uri = str(folder / uuid.uuid4().hex)
    part = write_part(uri, 0, [data], suffix(options.format))
    [info] = list_files(f"{uri}/{part.name}")
    [split] = plan_splits(info, options, 1 << 30)
    return read_split(split)[1]


# -- golden bytes: written by hand from the formats' definitions ---------------------------------------------------

_NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }" + b" " * 58 + b"\n"


@pytest.mark.parametrize(
    ("format", "kind", "value", "golden"),
    [
        ("text", "objects", ["a", "", "é\r!"], "a\n\né\r!\n".encode()),
        ("text", "array", np.array(["x", "yz"]), b"x\nyz\n"),
        ("jsonl", "objects", [{"é": [1, 2.5]}, None, (True, "\n")], '{"é":[1,2.5]}\nnull\n[true,"\\n"]\n'.encode()),
        ("jsonl", "table", pa.table({"a": [1, None]}), b'{"a":1}\n{"a":null}\n'),
        ("jsonl", "array", np.array([[1, 2], [3, 4]]), b"[1,2]\n[3,4]\n"),
        ("jsonl", "objects", [np.int64(3), {"x": np.float32(0.5)}], b'3\n{"x":0.5}\n'),
        ("csv", "objects", [{"a": 'q"q', "b": None}, {"b": True, "a": "x,y"}], b'a,b\n"q""q",\n"x,y",true\n'),
        ("csv", "objects", [(1, 0.1), (np.float64(1e300), "a\rb")], b'_0,_1\n1,0.1\n1e+300,"a\rb"\n'),
        ("csv", "objects", ["", datetime.date(2024, 2, 29)], b'_0\n""\n2024-02-29\n'),
        ("csv", "objects", [Decimal("1.50"), datetime.datetime(2024, 1, 2, 3)], b"_0\n1.50\n2024-01-02T03:00:00\n"),
        ("csv", "table", pa.table({"a": [1, None], "b": ["x", "y"]}), b"a,b\n1,x\n,y\n"),
        ("csv", "array", np.array([[1.5, 2], [3, 4]]), b"_0,_1\n1.5,2.0\n3.0,4.0\n"),
        ("npy", "array", np.array([[1, 2], [3, 4]], "<i2"), _NPY + b"\1\0\2\0\3\0\4\0"),
        ("fixed", "objects", [b"ab", b"cd"], b"abcd"),
        ("fixed", "array", np.array([[1, 2], [3, 4]], np.uint8), b"\1\2\3\4"),
    ],
)
def test_a_part_has_exactly_the_bytes_of_its_format(format: Format, kind: Kind, value: Any, golden: bytes) -> None:
    assert _encode(kind, value, format) == golden


def test_csv_options_choose_names_order_delimiter_and_header() -> None:
    records = [{"n": 1, "word": "a;b"}]
    assert _encode("objects", records, "csv", columns=WORDS, delimiter=";") == b'word;n\n"a;b";1\n'
    assert _encode("objects", records, "csv", columns=WORDS, header=False) == b"a;b,1\n"
    assert _encode("table", pa.table({"n": [1], "word": ["x"]}), "csv", columns=WORDS) == b"word,n\nx,1\n"


@many
@given(
    rows=st.lists(
        st.tuples(*[st.sampled_from(["a", "", 'q"', "x;", "\n", 1, -2, True, 0.5, math.nan, None, np.int8(3)])] * 2),
        max_size=9,
    ),
    delimiter=st.sampled_from(",;1-."),
    batch=st.integers(1, 4),
)
def test_csv_of_records_is_that_of_each_alone(rows: list[Any], delimiter: str, batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "_ROWS", batch)
        together = _encode("objects", rows, "csv", header=False, delimiter=delimiter)
    assert together == b"".join(_encode("objects", [row], "csv", header=False, delimiter=delimiter) for row in rows)


def test_a_parquet_part_has_the_declared_columns_and_twice_the_same_bytes() -> None:
    data = _encode("objects", [("a", 1), (None, 2)], "parquet", columns=WORDS)
    assert data == _encode("objects", [{"n": 1, "word": "a"}, {"word": None, "n": 2}], "parquet", columns=WORDS)
    assert pq.read_table(io.BytesIO(data)).equals(pa.table({"word": ["a", None], "n": [1, 2]}))
    assert data[:4] == data[-4:] == b"PAR1"


def test_parquet_keeps_every_declared_type() -> None:
    noon = datetime.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=datetime.UTC)
    row = ("é", 2**63 - 1, 0.1, True, b"\0", noon, datetime.date(2024, 2, 29))
    kinds = ("string", "int64", "float64", "boolean", "binary", "timestamp", "date")
    columns = tuple((f"c{index}", kind) for index, kind in enumerate(kinds))
    table = pq.read_table(io.BytesIO(_encode("objects", [row, (None,) * 7], "parquet", columns=columns)))
    assert [tuple(record.values()) for record in table.to_pylist()] == [row, (None,) * 7]


def test_arrays_become_numbered_or_declared_parquet_columns() -> None:
    array = np.array([[1, 2], [3, 4]], ">i8")
    assert pq.read_table(io.BytesIO(_encode("array", array, "parquet"))).to_pydict() == {"_0": [1, 3], "_1": [2, 4]}
    columns = (("x", "float64"), ("y", "int64"))
    table = pq.read_table(io.BytesIO(_encode("array", array, "parquet", columns=columns)))
    assert table.equals(pa.table({"x": [1.0, 3.0], "y": [2, 4]}))


# -- values that do not fit ----------------------------------------------------------------------------------------

_LOOP: list[Any] = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize(
    ("format", "records", "message"),
    [
        ("text", ["a", 1], "record 1 is of type int"),
        ("text", [1], "record 0 is of type int"),
        ("text", ["a", "b\nc"], "record 1 contains a line end"),
        ("text", ["a\r", "b"], "record 0 contains a line end"),
        ("text", ["a", "\ud800"], "line 2 .* lone surrogate"),
        ("jsonl", [1, math.nan], "record 1 is not JSON"),
        ("jsonl", [1, 2, {1, 2}], "record 2 is not JSON"),
        ("jsonl", [np.float64(math.inf)], "record 0 is not JSON"),
        ("jsonl", [np.zeros(2)], "record 0 is not JSON"),
        ("jsonl", [_LOOP], "record 0 is not JSON"),
        ("jsonl", [{"a": "\udc80"}], "lone surrogate"),
        ("csv", [("a", 1), ("b",)], "record 1 has 1 fields for 2 columns"),
        ("csv", [{"a": 1}, {"b": 2}], "record 1 lacks a; also has b"),
        ("csv", [{"a": 1}, {"a": 2, "b": 2}], "record 1 also has b"),
        ("csv", [()], "record 0 has 0 fields"),
        ("csv", [{"a": [1]}], "record 0: CSV has no text for a value of type list"),
        ("csv", [{1: 2}], "record 0: the keys"),
        ("parquet", [("a", 1), ("b", "2")], "record 1: column n is int64, the value is '2' .str."),
        ("parquet", [("a", 1.0)], "record 0: column n is int64"),
        ("parquet", [("a", True)], "record 0: column n is int64"),
        ("parquet", [("a", 1), ("b", 2**63)], "record 1: column n is int64"),
        ("parquet", [(b"a", 1)], "record 0: column word is string"),
        ("parquet", [{"word": "a"}], "record 0 lacks n"),
        ("npy", [1, 2], "npy cannot hold objects"),
        ("fixed", [b"ab", b"c"], "record 1 is 1 bytes"),
        ("fixed", ["ab"], "record 0 is a str"),
    ],
)
def test_a_record_that_does_not_fit_is_named_by_position(format: Format, records: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _encode("objects", records, format, columns=WORDS if format == "parquet" else ())


@pytest.mark.parametrize(
    ("format", "kind", "value"),
    [
        ("npy", "table", pa.table({"a": [1]})),
        ("npy", "array", np.array([object()])),
        ("npy", "array", np.array(1)),
        ("npy", "array", np.zeros(1, [("a", "i4"), ("b", "i2")])[["b", "a"]]),
        ("fixed", "table", pa.table({"a": [1]})),
        ("fixed", "array", np.array([[1]])),
        ("parquet", "array", np.zeros((1, 1, 1))),
        ("parquet", "array", np.zeros((1, 1), np.complex128)),
        ("csv", "array", np.zeros((1, 1, 1))),
    ],
)
def test_a_kind_the_format_cannot_hold_is_refused(format: Format, kind: Kind, value: Any) -> None:
    with pytest.raises(DataError):
        _encode(kind, value, format)


def test_parquet_from_objects_without_columns_says_what_to_declare() -> None:
    with pytest.raises(UsageError, match="Declare names and types"):
        _encode("objects", [1], "parquet")


# -- round trips ---------------------------------------------------------------------------------------------------

lines = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8)
texts = lines.filter(lambda line: not line.endswith("\r"))
strings = st.text(st.sampled_from('a",;\n\ré \ufeff\0'), max_size=4)
integers = st.integers(-(2**63), 2**63 - 1)


@many
@given(records=st.lists(texts, max_size=6))
def test_text_reads_back_as_written(tmp_path: Path, records: list[str]) -> None:
    assert _back(tmp_path, _encode("objects", records, "text"), ReadOptions("text")) == records


@many
@given(
    records=st.lists(st.dictionaries(strings, strings | integers | st.floats(allow_nan=False, allow_infinity=False)))
)
def test_jsonl_reads_back_as_written(tmp_path: Path, records: list[Any]) -> None:
    assert _back(tmp_path, _encode("objects", records, "jsonl"), ReadOptions("jsonl")) == records


@many
@given(
    rows=st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(strings, min_size=width, max_size=width))),
    delimiter=st.sampled_from(",;\t|"),
)
def test_csv_reads_back_as_written(tmp_path: Path, rows: list[list[str]], delimiter: str) -> None:
    records = [{f"c{index}": value for index, value in enumerate(row)} for row in rows]
    data = _encode("objects", records, "csv", delimiter=delimiter)
    assert _back(tmp_path, data, ReadOptions("csv", delimiter=delimiter)) == records
    data = _encode("objects", [tuple(row) for row in rows], "csv", header=False)
    assert _back(tmp_path, data, ReadOptions("csv", header=False)) == [tuple(row) for row in rows]


@many
@given(records=st.lists(st.tuples(st.none() | strings, st.none() | integers), max_size=6))
def test_parquet_reads_back_as_written_and_twice_the_same(tmp_path: Path, records: list[Any]) -> None:
    data = _encode("objects", records, "parquet", columns=WORDS)
    assert data == _encode("objects", records, "parquet", columns=WORDS)
    table = _back(tmp_path, data, ReadOptions("parquet"))
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == records
    assert _encode("table", table, "parquet") == data


@many
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["<f8", ">i4", "?", "<U3", "M8[ns]"]),
)
def test_npy_reads_back_as_written_for_every_memory_order(tmp_path: Path, shape: Sequence[int], dtype: str) -> None:
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    data = _encode("array", array, "npy")
    assert data == _encode("array", np.asfortranarray(array), "npy") == _encode("array", array[::-1][::-1], "npy")
    back = _back(tmp_path, data, ReadOptions("npy"))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("start", [0, 1, 2])
def test_npy_shows_nothing_of_what_memory_holds_between_fields(start: int) -> None:
    fields = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    memory = np.full(fields.itemsize * 6, 255, "u1")
    memory.view(fields)["a"] = memory.view(fields)["b"] = 7
    sound = np.zeros(6, fields)
    sound["a"] = sound["b"] = 7
    assert _encode("array", memory.view(fields)[start:], "npy") == _encode("array", sound[start:], "npy")


@pytest.mark.parametrize("format", ["text", "jsonl", "csv", "parquet", "fixed"])
def test_an_empty_partition_is_a_valid_empty_file(tmp_path: Path, format: Format) -> None:
    data = _encode("objects", [], format, columns=WORDS if format in ("parquet", "csv") else ())
    assert len(_back(tmp_path, data, ReadOptions(format, record_bytes=3))) == 0


def test_text_and_json_need_neither_numpy_nor_pyarrow(tmp_path: Path) -> None:
    script = f"""
import sys
from treadle.primitives.stores.input_files import list_files
from treadle.primitives.formats import (
    ReadOptions, WriteOptions, encode_part, plan_splits, read_split, suffix, write_part
)
for format, records in (("text", ["a"]), ("jsonl", [1]), ("csv", [("a", 1)])):
    part = write_part({str(tmp_path)!r}, 0, encode_part("objects", records, WriteOptions(format)), suffix(format))
    [info] = list_files({str(tmp_path)!r} + "/" + part.name)
    [split] = plan_splits(info, ReadOptions(format), 100)
    assert read_split(split)[1]
print([name for name in ("numpy", "pyarrow", "obstore") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


# -- Parquet in pieces -------------------------------------------------------------------------------------------------

CODED = pa.dictionary(pa.int8(), pa.string())


def _coded(words: Sequence[str | None], dictionary: Sequence[str]) -> pa.Array:
    indices = [None if word is None else dictionary.index(word) for word in words]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(dictionary))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    rows=st.integers(1, 12),
)
def test_a_parquet_part_shows_neither_pieces_nor_dictionaries(
    words: list[str | None], cuts: list[int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS", rows)
    starts = [0, *sorted(min(cut, len(words)) for cut in cuts), len(words)]
    orders = [["a", "b", "c"], ["c", "a", "b", "unused"]]
    pieces = [
        pa.table({"word": _coded(words[start:stop], orders[number % 2]), "n": pa.array(range(start, stop), pa.int64())})
        for number, (start, stop) in enumerate(pairwise(starts))
    ]
    options = WriteOptions("parquet")
    whole = pa.table({"word": _coded(words, orders[0]), "n": pa.array(range(len(words)), pa.int64())})
    wanted = b"".join(encode_part("table", whole, options))
    assert b"".join(encode_pieces("table", pieces, len(words), options)) == wanted
    file = pq.ParquetFile(io.BytesIO(wanted))
    assert file.metadata.num_row_groups == -(-len(words) // rows)
    back = file.read()
    assert back.schema.field("word").type == CODED
    assert (back.column("word").to_pylist(), back.column("n").to_pylist()) == (words, list(range(len(words))))


def test_row_groups_are_written_before_all_pieces_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS", 100)
    made = 0

    def pieces() -> Iterator[list[Any]]:
        nonlocal made
        for start in range(0, 1000, 50):
            made += 1
            yield [(str(number), number) for number in range(start, start + 50)]

    options = WriteOptions("parquet", WORDS)
    buffers = encode_pieces("objects", pieces(), 1000, options)
    first = [next(buffers) for _ in range(3)]
    assert made < 5
    assert pq.read_table(io.BytesIO(b"".join([*first, *buffers]))).column("n").to_pylist() == list(range(1000))


def test_an_ordered_dictionary_keeps_its_order() -> None:
    sizes = pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), pa.array(["s", "m", "l"]), ordered=True)
    back = pq.read_table(io.BytesIO(_encode("table", pa.table({"size": sizes}), "parquet")))
    assert back.schema.field("size").type.ordered
    assert back.column("size").combine_chunks().dictionary.to_pylist() == ["s", "m", "l"]


def test_a_record_that_does_not_fit_is_named_by_piece_and_position() -> None:
    pieces = [[("a", 1), ("b", 2)], [("c", 3), ("d", "x")]]
    with pytest.raises(DataError, match=r"record 1: column n is int64, .* \(counted from record 2\)"):
        list(encode_pieces("objects", pieces, 4, WriteOptions("parquet", WORDS)))
