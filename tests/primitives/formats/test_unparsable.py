"""Lines that cannot be parsed: they are among the records if that is tolerated, and are named by file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import DataError
from treadle.primitives.formats import ReadOptions, plan_splits, read_pieces, read_split
from treadle.primitives.formats.malformed_lines import TEXT_LIMIT, Unparsable
from treadle.primitives.formats.record_location import Locator
from treadle.primitives.stores.input_files import list_files

JSONL = b'{"a": 1}\n\nNaN\n{"a": 2}\n{"a"\n'
CSV = b'k,v\na,1\nb\n\nc,"x\ny"\nd,4,5\ne,5\n'


def records(path: Path, options: ReadOptions, split: int = 1 << 20, size: int = 1 << 20) -> list[Any]:
    """The records of all splits, each with its line or row by the locator."""
    (info,) = list_files(path.as_uri(), None)
    found = []
    for one in plan_splits(info, options, split):
        _, pieces = read_pieces(one, size)
        locator = Locator(one)
        for position, record in enumerate(record for piece in pieces for record in piece):
            place = locator.place(position)
            found.append((record, place.row if place.line is None else place.line))
    return found


def written(folder: Path, data: bytes, name: str = "input") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("split", [1 << 20, 9, 1])
@pytest.mark.parametrize("size", [1 << 20, 4])
def test_a_bad_line_of_json_stays_among_the_records(tmp_path: Path, split: int, size: int) -> None:
    found = records(written(tmp_path, JSONL), ReadOptions("jsonl", tolerate=True), split, size)
    assert [line for _, line in found] == [1, 3, 4, 5]
    assert [record for record, _ in found if not isinstance(record, Unparsable)] == [{"a": 1}, {"a": 2}]
    bad = [record for record, _ in found if isinstance(record, Unparsable)]
    assert [one.text for one in bad] == ["NaN", '{"a"']
    assert f"{tmp_path}/input, line 3, " in bad[0].message
    assert f"{tmp_path}/input, line 5, " in bad[1].message
    assert isinstance(bad[0].error, DataError)


@pytest.mark.parametrize("size", [1 << 20, 4])
def test_a_bad_row_of_csv_stays_among_the_records(tmp_path: Path, size: int) -> None:
    found = records(written(tmp_path, CSV), ReadOptions("csv", tolerate=True), size=size)
    assert [line for _, line in found] == [2, 3, 5, 7, 8]
    assert [record.text for record, _ in found if isinstance(record, Unparsable)] == ["b\n", "d,4,5\n"]
    assert found[2][0] == {"k": "c", "v": "x\ny"}
    assert "line 7, has 3 fields, the header has 2" in found[3][0].message


def test_csv_goes_on_after_a_quote_that_is_wrong(tmp_path: Path) -> None:
    found = records(written(tmp_path, b'k\n"a"b\nc\n"d\n'), ReadOptions("csv", tolerate=True))
    assert [type(record) for record, _ in found] == [Unparsable, dict, Unparsable]
    assert [line for _, line in found] == [2, 3, 4]


@pytest.mark.parametrize("format", ["text", "jsonl", "csv"])
def test_a_line_that_is_no_utf8_stays_among_the_records(tmp_path: Path, format: Any) -> None:
    data = b'"k"\n"a"\n"\xff"\n"b"\n'
    found = records(written(tmp_path, data), ReadOptions(format, tolerate=True))
    bad = [(record, line) for record, line in found if isinstance(record, Unparsable)]
    assert [(record.text.strip(), line) for record, line in bad] == [('"\\xff"', 3)]
    assert len(found) == (3 if format == "csv" else 4)


def test_lines_of_gzip_equal_the_unpacked_file(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(JSONL), "input.gz")
    assert [line for _, line in records(path, ReadOptions("jsonl", gzip=True, tolerate=True))] == [1, 3, 4, 5]


def test_a_long_line_is_kept_in_part(tmp_path: Path) -> None:
    ((bad, _),) = records(written(tmp_path, b"x" * 9_999), ReadOptions("jsonl", tolerate=True))
    assert len(bad.text) == TEXT_LIMIT


@pytest.mark.parametrize(("format", "data"), [("jsonl", JSONL), ("csv", CSV)])
def test_a_bad_line_is_refused_unless_it_is_tolerated(tmp_path: Path, format: Any, data: bytes) -> None:
    (info,) = list_files(written(tmp_path, data).as_uri(), None)
    (split,) = plan_splits(info, ReadOptions(format), 1 << 20)
    with pytest.raises(DataError, match=f"{tmp_path}/input, line 3, "):
        read_split(split)


def test_lines_are_counted_from_the_split_far_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.primitives.formats.malformed_lines._COUNTED", 10)
    (info,) = list_files(written(tmp_path, b"1\n" * 20).as_uri(), None)
    split = plan_splits(info, ReadOptions("jsonl"), 20)[1]
    place = Locator(split).place(2)
    assert (place.line, place.from_byte) == (3, 20)
    assert place.text == f"{tmp_path}/input, line 3 counted from byte 20"


@given(
    values=st.lists(st.one_of(st.integers(0, 9), st.text("ab\n", max_size=3), st.none()), max_size=12),
    split=st.integers(1, 40),
)
def test_every_record_of_json_lines_is_found_where_it_stands(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], split: int
) -> None:
    lines = ["" if value is None else json.dumps(value) for value in values]
    path = written(tmp_path_factory.mktemp("lines"), "".join(f"{line}\n" for line in lines).encode())
    expected = [(json.loads(line), number) for number, line in enumerate(lines, 1) if line]
    assert records(path, ReadOptions("jsonl"), split) == expected


def test_rows_of_binary_formats_are_counted_over_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "p", row_group_size=3)
    np.save(tmp_path / "n.npy", np.arange(10))
    (tmp_path / "f").write_bytes(bytes(range(20)))
    for name, options in (("p", ReadOptions("parquet")), ("n.npy", ReadOptions("npy")), ("f", ReadOptions("fixed", 2))):
        (info,) = list_files((tmp_path / name).as_uri(), None)
        rows = []
        for split in plan_splits(info, options, 10):
            _, value = read_split(split)
            rows += [Locator(split).place(position).row for position in range(len(value))]
        assert rows == list(range(10))
