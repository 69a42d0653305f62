from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from treadle.primitives.encoding import codec, frames
from treadle.primitives.encoding.codec import concat, decode, encode, rows
from treadle.primitives.encoding.read_only import is_frozen
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import CorruptError, DataError, UsageError

Array: TypeAlias = np.ndarray[Any, Any]
atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.dates()
    | st.datetimes(timezones=st.just(dt.UTC) | st.none())
    | st.uuids()
    | st.decimals(allow_nan=False)
)
frozen_records = st.recursive(
    atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
any_records = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)
dtypes = hnp.scalar_dtypes() | hnp.array_dtypes() | hnp.nested_dtypes()
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
any_arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes))

_small, _short = st.integers(0, 9), st.text(max_size=2)
_columns: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.timestamp("us", "UTC"), st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1))),
    (pa.date32(), st.dates()),
    (pa.decimal128(20, 2), st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100)),
    (pa.list_(pa.int32()), st.lists(st.integers(-5, 5) | st.none(), max_size=3)),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), st.fixed_dictionaries({"x": _small, "y": _short})),
    (pa.map_(pa.string(), pa.int64()), st.lists(st.tuples(_short, _small), max_size=2)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["red", "green", "blue"])),
    (pa.null(), st.none()),
]


@st.composite
def any_tables(draw: st.DrawFn) -> pa.Table:
    """Tables of several chunks, with nulls, perhaps sliced."""
    chosen = draw(st.lists(st.sampled_from(_columns), min_size=1, max_size=3))
    schema = pa.schema([(f"c{index}", kind) for index, (kind, _) in enumerate(chosen)], metadata={"k": "v"})
    batches = []
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.integers(0, 5))
        columns = [
            pa.array(draw(st.lists(values | st.none(), min_size=size, max_size=size)), kind) for kind, values in chosen
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    table = pa.Table.from_batches(batches, schema)
    start = draw(st.integers(0, table.num_rows))
    return table.slice(start, draw(st.integers(0, table.num_rows)))


def joined(kind: Kind, value: Any) -> bytes:
    return b"".join(encode(kind, value))


@given(st.integers(0, 130) | st.integers(4000, 4200))
def test_a_short_part_has_the_bytes_that_the_general_framing_gives_it(length: int) -> None:
    records = [bytes(length)]
    # private: the test writes the format by hand
    assert joined("objects", records) == b"".join(frames.frame(codec._PICKLE, pickle.dumps(records, protocol=5), []))


@given(st.lists(any_records))
def test_records_come_back_equal(records: list[Any]) -> None:
    assert decode(joined("objects", records)) == records


@given(any_arrays, st.data())
def test_arrays_of_any_dtype_shape_and_stride_come_back_bit_for_bit(array: Array, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        array = array.T
    array = array[:: data.draw(st.sampled_from([1, -1, 2, -3]))]
    decoded = decode(joined("array", array))
    assert type(decoded) is np.ndarray
    assert decoded.dtype == array.dtype
    assert decoded.shape == array.shape
    assert decoded.tobytes() == array.tobytes()
    assert not decoded.flags.writeable
    assert rows("array", decoded) == len(array)


@pytest.mark.parametrize(
    "dtype", ["M8[ns]", "m8[7D]", "S0", "V0", "U0", ">f8", "c16", "f2", "?", [("a", "<i4"), ("b", ">U3", (2,))], "V5"]
)
@pytest.mark.parametrize("shape", [(0,), (3,), (3, 0), (0, 3), (2, 2, 2)])
def test_an_unusual_dtype_or_an_empty_shape_survives(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype)
    decoded = decode(joined("array", array))
    assert (decoded.dtype, decoded.shape) == (array.dtype, shape)


def test_dtypes_the_npy_format_cannot_say_survive() -> None:
    aligned = np.zeros(3, np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"]}, align=True))
    titled = np.zeros(3, np.dtype({"names": ["a"], "formats": ["i4"], "titles": ["A"]}))
    noted = np.zeros(3, np.dtype("i4", metadata={"unit": "m"}))
    overlapping = np.zeros(3, np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 0]}))
    for array in (aligned, titled, noted, overlapping):
        decoded = decode(joined("array", array))
        assert decoded.dtype == array.dtype
        assert not decoded.flags.writeable


@given(any_tables())
@settings(deadline=None)
def test_tables_with_nulls_nesting_and_dictionaries_come_back_equal(table: pa.Table) -> None:
    decoded = decode(joined("table", table))
    decoded.validate(full=True)
    assert decoded.equals(table, check_metadata=True)
    assert rows("table", decoded) == table.num_rows


def test_a_slice_of_a_table_carries_only_its_rows() -> None:
    table = pa.table({"a": np.arange(1_000_000)})
    assert len(joined("table", table.slice(500, 10))) < 2000


def test_a_record_batch_counts_as_a_table() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    assert decode(joined("table", batch)).to_pydict() == {"a": [1, 2]}


@given(st.lists(any_records, max_size=3))
def test_a_part_is_a_multiple_of_64_bytes(records: list[Any]) -> None:
    assert sum(map(len, encode("objects", records))) % 64 == 0


def test_values_are_views_of_the_buffer_aligned_to_64_bytes() -> None:
    large = np.arange(12_500_000.0)
    values: list[tuple[Kind, Any, Callable[[Any], Any]]] = [
        ("array", large, lambda array: array),
        ("array", large[:1_000_000].reshape(10, 100_000).T, lambda array: array),
        ("table", pa.table({"a": large}), lambda table: table["a"].chunk(0).to_numpy()),
        ("objects", [1, {"weights": large}], lambda records: records[1]["weights"]),
    ]
    for kind, value, array_of in values:
        buffer = np.frombuffer(joined(kind, value), np.uint8)
        view = array_of(decode(buffer.data))
        assert np.shares_memory(view, buffer)
        if kind != "table":  # Arrow aligns its own buffers to 8 bytes
            assert (view.ctypes.data - buffer.ctypes.data) % 64 == 0
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


@pytest.mark.parametrize("kind", ["array", "table", "objects"])
def test_large_buffers_are_encoded_without_a_copy(kind: Kind) -> None:
    large = np.arange(1_000_000.0)
    value = {"array": large, "table": pa.table({"a": large}), "objects": ["x", (large,)]}[kind]
    views = [np.frombuffer(buffer, np.uint8) for buffer in encode(kind, value)]
    assert any(np.shares_memory(view, large) for view in views)
    assert sum(map(len, views)) < large.nbytes + 4096


def test_many_small_arrays_do_not_become_many_small_writes() -> None:
    assert len(encode("objects", [np.arange(10) for _ in range(1000)])) < 10


@given(st.data(), st.lists(any_records, max_size=5))
def test_a_truncated_or_extended_part_is_refused(data: st.DataObject, records: list[Any]) -> None:
    part = joined("objects", records)
    for torn in (part[: data.draw(st.integers(0, len(part) - 1))], part + bytes(64), b"", bytes(len(part))):
        with pytest.raises(CorruptError):
            decode(torn)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([{}, None]), "Python objects"),
        (np.zeros(2, [("a", "O")]), "Python objects"),
        (np.array(["a"], np.dtypes.StringDType()), "Python objects"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
        (np.array(3), "ndarray"),
        ([1, 2], "list"),
    ],
)
def test_unusual_array_is_refused_in_the_users_terms(array: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        encode("array", array)


@pytest.mark.parametrize(("kind", "value"), [("table", {"a": [1]}), ("objects", (1, 2)), ("objects", np.arange(3))])
def test_a_value_of_another_kind_is_refused(kind: Kind, value: Any) -> None:
    with pytest.raises(DataError, match=type(value).__name__):
        encode(kind, value)


class Unpicklable:
    def __reduce__(self) -> str:
        raise RuntimeError("no way")


@pytest.mark.parametrize("bad", [lambda: 1, threading.Lock(), Unpicklable(), (1, [threading.Lock()])])
def test_a_record_that_cannot_be_pickled_is_named_by_position_and_type(bad: Any) -> None:
    with pytest.raises(DataError, match=rf"record 2 is a .*{type(bad).__name__} and cannot be pickled") as caught:
        encode("objects", [1, "x", bad, bad])
    assert "top level of a module" in caught.value.hint


def test_a_record_whose_class_is_gone_is_a_data_error() -> None:
    part = joined("objects", [Gone()])
    del globals()["Gone"]
    with pytest.raises(DataError, match="Gone"):
        decode(part)


class Gone: ...


def test_plain_arrays_are_not_pickled() -> None:
    part = joined("array", np.arange(3.0))
    assert b"numpy" not in part
    assert b"('<f8', (3,))" in part


@given(st.lists(st.lists(any_records, max_size=3), min_size=1, max_size=4))
def test_concat_of_lists_is_all_their_records_in_order(parts: list[list[Any]]) -> None:
    assert concat("objects", parts) == [record for part in parts for record in part]


def test_concat_of_one_non_empty_part_is_that_part() -> None:
    array, table, records = np.arange(3), pa.table({"a": [1]}), [1]
    assert concat("array", [np.empty(0, "U3"), array, np.empty((0, 4))]) is array
    assert concat("table", [table, table.slice(0, 0)]) is table
    assert concat("objects", [[], records]) is records
    assert concat("objects", [[], []]) == []


def test_concat_joins_arrays_read_only_and_tables_without_a_copy() -> None:
    array = concat("array", [np.arange(3), np.arange(3, 5)])
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert is_frozen("array", array)
    tables = [pa.table({"a": [1]}), pa.table({"a": [2, 3]})]
    table = concat("table", tables)
    assert table["a"].to_pylist() == [1, 2, 3]
    assert table["a"].chunk(1).buffers()[1].address == tables[1]["a"].chunk(0).buffers()[1].address


@pytest.mark.parametrize("dtype", [">i4", ">U2", np.dtype([("a", "i1"), ("b", ">f8")], align=True)], ids=str)
def test_concat_of_arrays_has_the_dtype_of_each_byte_for_byte(dtype: np.dtype[Any]) -> None:
    array = np.zeros(2, dtype)
    assert repr(concat("array", [array, array]).dtype) == repr(array.dtype)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("array", [np.arange(2), np.arange(2.0)]),
        ("array", [np.zeros((1, 2)), np.zeros((1, 3))]),
        ("table", [pa.table({"a": [1]}), pa.table({"a": ["x"]})]),
        ("table", [pa.table({"a": [1]}), pa.table({"b": [1]})]),
    ],
)
def test_partitions_of_different_types_are_refused(kind: Kind, values: list[Any]) -> None:
    with pytest.raises(DataError, match="partitions differ"):
        concat(kind, values)


@given(st.lists(frozen_records))
def test_lists_of_immutable_values_are_frozen_and_stay_so(records: list[Any]) -> None:
    assert is_frozen("objects", records)
    assert is_frozen("objects", decode(joined("objects", records)))


class Number(int): ...


@pytest.mark.parametrize(
    "record", [[], {}, set(), bytearray(), Number(3), object(), np.zeros(2), np.zeros(1, "i4,i4")[0], threading.Lock()]
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (1, x), lambda x: (1, (2, (x,)))])
def test_one_mutable_value_at_any_depth_thaws_the_list(record: Any, wrap: Callable[[Any], Any]) -> None:
    assert not is_frozen("objects", [1, "a", wrap(record), None])


def test_decoded_arrays_and_tables_are_frozen() -> None:
    assert is_frozen("array", decode(joined("array", np.arange(3))))
    assert not is_frozen("array", np.arange(3))
    assert is_frozen("table", decode(joined("table", pa.table({"a": [1]}))))
    assert is_frozen("objects", decode(joined("objects", [np.arange(3), np.float64(1.5), (np.arange(2),)])))


def test_plain_records_need_neither_numpy_nor_arrow() -> None:
    code = """
        import sys
        from treadle.primitives.encoding.codec import decode, encode
        from treadle.primitives.encoding.read_only import is_frozen
        assert is_frozen("objects", decode(b"".join(encode("objects", [(1, "a")]))))
        assert not {"numpy", "pyarrow"} & sys.modules.keys(), "imported too early"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_a_table_without_arrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    part = joined("table", pa.table({"a": [1]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda: decode(part), lambda: encode("table", {})):
        with pytest.raises(UsageError, match="pyarrow") as caught:
            use()
        assert "treadle-primitives[arrow]" in caught.value.hint


def test_rows_without_columns_are_refused_because_arrow_would_lose_them() -> None:
    with pytest.raises(DataError, match="without columns"):
        encode("table", pa.table({"a": [1, 2]}).select([]))


def test_large_list_is_encoded_in_pieces_that_are_decoded_one_at_a_time() -> None:
    records = [f"{number:01000}" for number in range(20_000)]
    data = b"".join(codec.in_pieces(records, encode("objects", records)))
    pieces = [decode(piece) for piece in codec.pieces(data)]
    assert len(pieces) > 2
    assert max(map(len, pieces)) * 1000 < 5 << 20
    assert [record for piece in pieces for record in piece] == records == decode(data)


@pytest.mark.parametrize("records", [["x" * (3 << 20)] * 100 + ["y" * (6 << 20)], ["x" * (9 << 20)], [], [1, 2]])
def test_list_that_pieces_would_make_larger_is_encoded_as_a_whole(records: list[Any]) -> None:
    assert codec.in_pieces(records, encode("objects", records)) == encode("objects", records)


@given(st.integers(1, 400), st.integers(0, 100_000))
@settings(max_examples=20)
def test_encoding_for_little_memory_keeps_every_list(count: int, size: int) -> None:
    records = [bytes([number % 256]) * size for number in range(count)]
    data = b"".join(codec.in_pieces(records, encode("objects", records)))
    assert decode(data) == records
    assert len(data) % 64 == 0
