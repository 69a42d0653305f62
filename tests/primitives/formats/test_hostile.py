"""Damaged or hostile files are refused like other unreadable ones."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import DataError
from treadle.primitives.formats import ReadOptions, plan_splits, read_split
from treadle.primitives.formats.arrays import parse_npy
from treadle.primitives.stores.input_files import list_files


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data


HOSTILE = {
    "deep": "-" * 500_000 + "1",
    "nested": "[" * 100_000,
    "negative": "{'descr': '|u1', 'fortran_order': False, 'shape': (-2, -4)}",
    "code": "__import__('os').system('true')",
    "endless": "{'descr': '|u1', 'fortran_order': False, 'shape': (10**100,)}",
}


@pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_npy_header_is_refused(header: str) -> None:
    data = npy(header, b"12345678")
    with pytest.raises(DataError):
        parse_npy(data, len(data), "x.npy")


@pytest.fixture(scope="module", params=["none", "snappy"])
def parquet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """(a file to write to, the content of a valid file)."""
    path = tmp_path_factory.mktemp("parquet") / "part.parquet"
    table = pa.table({"n": range(2000), "s": [f"x{index}" for index in range(2000)]})
    pyarrow.parquet.write_table(table, path, row_group_size=500, compression=request.param)
    return path, path.read_bytes()


@given(where=st.floats(0, 1, exclude_max=True), damage=st.binary(min_size=1, max_size=50) | st.none())
def test_a_damaged_parquet_file_is_an_error_of_its_data_if_any(
    parquet: tuple[Path, bytes], where: float, damage: bytes | None
) -> None:
    """Bytes are changed, or the file is cut there. The values of a page have no checksum."""
    path, sound = parquet
    start = int(where * len(sound))
    path.write_bytes(sound[:start] if damage is None else sound[:start] + damage + sound[start + len(damage) :])
    with contextlib.suppress(DataError):
        for split in plan_splits(list_files(str(path))[0], ReadOptions("parquet"), 10_000):
            read_split(split)
