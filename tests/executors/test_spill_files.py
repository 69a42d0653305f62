"""Files larger than the memory budget, each in one split, pass through a worker that keeps to it. So do batches of
tables."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from executors import spill_functions as functions
from executors.bench import call
from executors.spill_line import SIZES, lent, started

from treadle.executors import Place
from treadle.executors.program import Cut, Reduce
from treadle.primitives.formats import FileSplit, Format, ReadOptions, plan_splits
from treadle.primitives.stores.input_files import list_files

ROW_BYTES = 32
"""Approximate bytes of a line in each file."""
FORMATS_OF_COLUMNS = [
    pytest.param(144 << 20, 144 << 20, id="small"),  # pyarrow alone takes half of it
    SIZES[1],
]
_AT_ONCE = 1 << 14


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with lent(tmp_path) as found:
        yield found


def numbers(count: int) -> Iterator[range]:
    return (range(start, min(start + _AT_ONCE, count)) for start in range(0, count, _AT_ONCE))


def table(path: Path, count: int) -> None:
    """Write the table in one row group."""
    rows = pa.table([np.arange(count)] * (ROW_BYTES // 8), names=["a", "b", "c", "d"])
    pq.write_table(rows, path, row_group_size=count, compression="NONE", use_dictionary=False)


def array(path: Path, count: int) -> None:
    file = np.lib.format.open_memmap(path, mode="w+", dtype="i8", shape=(count, ROW_BYTES // 8))
    for some in numbers(count):
        file[some.start : some.stop] = np.array(some)[:, None]


LINES: dict[Format, Callable[[int], str]] = {
    "text": lambda n: f"{n:031}\n",
    "jsonl": lambda n: f'{{"n":"{n:012}","s":"{n:07}"}}\n',
    "csv": lambda n: f'{n:015},"{n:013}"\n',
}
COLUMNS: dict[Format, Callable[[Path, int], None]] = {"parquet": table, "npy": array}


def split_of(path: Path, format: Format) -> FileSplit:
    """A split with the whole file."""
    [info] = list_files(str(path))
    options = ReadOptions(format, header=False, gzip=path.suffix == ".gz")
    [split] = plan_splits(info, options, 1 << 40)
    return split


def packed(path: Path) -> Path:
    with path.open("rb") as source, gzip.open(f"{path}.gz", "wb", 1) as file:
        shutil.copyfileobj(source, file)
    return Path(f"{path}.gz")


@pytest.mark.parametrize(("memory", "size"), SIZES)
@pytest.mark.parametrize(("format", "gzipped"), [*((format, False) for format in LINES), ("text", True)])
async def test_a_file_of_lines(
    place: Place, tmp_path: Path, memory: int, size: int, format: Format, gzipped: bool
) -> None:
    """A function gets the lines one after the other."""
    path, count = tmp_path / "input", size // ROW_BYTES
    with path.open("w") as file:
        for some in numbers(count):
            file.write("".join(map(LINES[format], some)))
    async with started(place, memory) as line:
        source = split_of(packed(path) if gzipped else path, format)
        outcome = await line.run(Reduce("seen", "partition", uses=call(functions.seen)), source=source)
        assert line.records(outcome.block) == [count]


@pytest.mark.parametrize(("memory", "size"), FORMATS_OF_COLUMNS)
@pytest.mark.parametrize(("format", "gzipped"), [("parquet", False), ("npy", False), ("npy", True)])
async def test_a_file_of_columns(
    place: Place, tmp_path: Path, memory: int, size: int, format: Format, gzipped: bool
) -> None:
    path, count = tmp_path / "input", size // ROW_BYTES
    COLUMNS[format](path, count)
    async with started(place, memory) as line:
        outcome = await line.run(source=split_of(packed(path) if gzipped else path, format))
        assert (outcome.rows, outcome.spilled > size // 2) == (count, True)


@pytest.mark.parametrize(("memory", "size"), FORMATS_OF_COLUMNS)
async def test_a_table_is_cut_into_batches(place: Place, tmp_path: Path, memory: int, size: int) -> None:
    path, count = tmp_path / "input", size // ROW_BYTES
    table(path, count)
    async with started(place, memory) as line:
        outcome = await line.run(source=split_of(path, "parquet"), tail=Cut(max_bytes=1 << 20))
        assert outcome.block is not None
        assert (outcome.rows, sum(part.rows for part in outcome.block.parts)) == (count, count)
        assert max(part.length for part in outcome.block.parts) <= (1 << 20) + 4096
