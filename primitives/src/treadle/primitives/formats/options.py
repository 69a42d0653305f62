"""How files are read and written: the options of each format, as they travel in payloads."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Format = Literal["text", "jsonl", "csv", "parquet", "npy", "fixed"]


class ReadOptions(Struct, frozen=True):
    """How the files of a source are decoded."""

    format: Format
    record_bytes: int = 0
    """`fixed` only."""
    header: bool = True
    """`csv` only: the first line names the columns."""
    delimiter: str = ","
    gzip: bool = False
    """One split: gzip cannot be entered in the middle."""
    table: bool = False
    """`text` only: the lines as a table."""
    tolerate: bool = False
    """For text, jsonl and csv: a line that cannot be parsed becomes an `Unparsable` instead of an error."""


class WriteOptions(Struct, frozen=True):
    """How an output part is encoded."""

    format: Format
    columns: tuple[tuple[str, str], ...] = ()
    """(name, type) in order: string, int64, float64, boolean, binary, timestamp, date."""
    header: bool = True
    delimiter: str = ","


class FileSplit(Struct, frozen=True, tag="file"):
    """The records that begin in [start, stop) of a file; for Parquet, [start, stop) are row groups."""

    uri: str
    start: int
    stop: int
    size: int
    """Size of the whole file in bytes."""
    version: str
    """ETag, or modification time and size: a file that changed since the listing is refused."""
    options: ReadOptions
