"""Values without a text form are refused, in files and as keys. None is written in Python's notation."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from frames import Frame

from treadle.primitives.encoding.references import Kind
from treadle.primitives.encoding.tabular import as_partition
from treadle.primitives.errors import DataError
from treadle.primitives.formats import Format, WriteOptions, encode_part
from treadle.primitives.shuffling.keys import canonical


class Shop:
    name = "north"


class Colour(enum.Enum):
    RED = 1


FRAME = Frame({"shop": ["a", "b"], "n": [1, 2]})
SHAPELESS = [
    Shop(),
    Colour.RED,
    FRAME,
    FRAME["shop"],
    pa.table({"a": [1]}),
    pa.array([1]),
    1j,
    Path("x"),
    np.datetime64("2024-01-01T00:00:00.000000001"),
    object,
]


def encoded(kind: Kind, value: Any, format: Format = "csv") -> bytes:
    return b"".join(map(bytes, encode_part(kind, value, WriteOptions(format))))


@pytest.mark.parametrize("format", ["csv", "jsonl", "text", "parquet", "npy", "fixed"])
@pytest.mark.parametrize("value", SHAPELESS, ids=lambda value: type(value).__name__)
def test_a_value_without_a_text_form_is_refused(format: Format, value: Any) -> None:
    columns = (("_0", "string"),) if format == "parquet" else ()
    with pytest.raises(DataError) as caught:
        encode_part("objects", ["fine" if format != "fixed" else b"fine", value], WriteOptions(format, columns))
    assert "record 1" in caught.value.message or format == "npy"
    assert caught.value.hint


def test_a_nested_value_without_a_text_form_is_refused() -> None:
    for record in ({"shop": FRAME}, (1, Shop())):
        with pytest.raises(DataError, match="record 0"):
            encoded("objects", [record])
        with pytest.raises(DataError, match="record 0"):
            encoded("objects", [record], "jsonl")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (FRAME, "pyarrow.table(frame).to_pylist()"),
        (pa.table({"a": [1]}), "table.to_pylist()"),
        (pa.array([1]), "value.to_pylist()"),
        (datetime.date(2024, 1, 2), "value.isoformat()"),
        (np.array([1, 2]), "value.tolist()"),
    ],
    ids=["frame", "table", "column", "date", "array"],
)
def test_the_refusal_says_the_line_that_converts(value: Any, line: str) -> None:
    with pytest.raises(DataError) as caught:
        encoded("objects", [value], "jsonl")
    assert line in caught.value.hint


def test_values_with_a_text_form_keep_it() -> None:
    uuid = UUID(int=5)
    row = (None, True, 1, 0.5, Decimal("1.50"), datetime.timedelta(seconds=5), datetime.time(3, 4), uuid)
    data = encoded("objects", [row])
    assert data.splitlines()[1] == f",true,1,0.5,1.50,0:00:05,03:04:00,{uuid}".encode()


def test_a_numpy_row_is_a_row_of_csv() -> None:
    named = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    assert encoded("objects", [np.array([1, 2]), (3, 4)]) == b"_0,_1\n1,2\n3,4\n"
    assert encoded("objects", [np.array([7])]) == b"_0\n7\n"
    assert encoded("objects", list(named)) == encoded("array", named) == b"a,b\n1,2.5\n"


def test_finer_moments_are_never_written_as_bare_integers() -> None:
    fine = np.array(["2024-01-02T03:04:05.000000007"], "M8[ns]")
    whole = fine.astype("M8[us]").astype("M8[ns]")
    for kind, value in (("array", fine), ("objects", list(fine))):
        with pytest.raises(DataError, match="record 0"):
            encoded(kind, value)  # type: ignore[arg-type]
    assert encoded("array", whole) == encoded("objects", list(whole)) == b"_0\n2024-01-02T03:04:05\n"
    assert encoded("array", np.array([5_000], "m8[ns]")) == b"_0\n0:00:00.000005\n"


def test_npy_refuses_a_masked_array() -> None:
    with pytest.raises(DataError, match="masked"):
        encoded("array", np.ma.masked_array([1, 2], [False, True]), "npy")


def test_column_is_refused_as_a_key() -> None:
    with pytest.raises(DataError) as caught:
        canonical(FRAME["shop"])
    assert "per: partition" in caught.value.hint


def test_a_frame_is_a_table_without_unnamed_index_and_metadata() -> None:
    found = as_partition(Frame({"n": [1], "__index_level_0__": [7], "shop": ["a"]}, {"pandas": "{}"}))
    assert found is not None
    kind, table = found
    assert (kind, table.to_pylist(), table.schema.metadata) == ("table", [{"n": 1, "shop": "a"}], None)


@pytest.mark.parametrize("value", [FRAME["shop"], [FRAME], {"a": 1}, "text", np.int64(1), np.array(1)])
def test_other_values_are_refused_as_a_partition(value: Any) -> None:
    assert as_partition(value) is None
