"""Sources and outputs: one constructor for each format, and literal data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .handles import ValueHandle

Compression = Literal["auto", "none", "gzip"]
IfExists = Literal["fail", "replace"]
Columns = Mapping[str, str]
Uri = str | ValueHandle


@dataclass(frozen=True)
class Files:
    """Files of a format: a source as `input`, a destination as `output`."""

    options: dict[str, Any]


@dataclass(frozen=True)
class LiteralData:
    """Records inside the workflow itself."""

    options: dict[str, Any]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def text(
    uri: Uri,
    *,
    split: str | None = None,
    compression: Compression | None = None,
    table: bool | None = None,
    if_exists: IfExists | None = None,
) -> Files:
    """Lines of UTF-8; with `table` they are read as Arrow tables of one column, `line`."""
    shape = given(table=table)
    return Files(given(uri=uri, format="text", split=split, compression=compression, if_exists=if_exists) | shape)


def jsonl(
    uri: Uri, *, split: str | None = None, compression: Compression | None = None, if_exists: IfExists | None = None
) -> Files:
    """One JSON value on each line."""
    return Files(given(uri=uri, format="jsonl", split=split, compression=compression, if_exists=if_exists))


def csv(
    uri: Uri,
    *,
    split: str | None = None,
    compression: Compression | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    columns: Columns | None = None,
    if_exists: IfExists | None = None,
) -> Files:
    """Comma-separated values."""
    shape = given(header=header, delimiter=delimiter, columns=columns)
    return Files(given(uri=uri, format="csv", split=split, compression=compression, if_exists=if_exists) | shape)


def parquet(
    uri: Uri, *, split: str | None = None, columns: Columns | None = None, if_exists: IfExists | None = None
) -> Files:
    """Arrow tables; writing plain objects needs the names and types in `columns`."""
    return Files(given(uri=uri, format="parquet", split=split, columns=columns, if_exists=if_exists))


def npy(uri: Uri, *, split: str | None = None, if_exists: IfExists | None = None) -> Files:
    """NumPy arrays."""
    return Files(given(uri=uri, format="npy", split=split, if_exists=if_exists))


def fixed(
    uri: Uri,
    *,
    record_bytes: int | ValueHandle | None = None,
    split: str | None = None,
    if_exists: IfExists | None = None,
) -> Files:
    """Records of `record_bytes` bytes each, as rows of a uint8 array."""
    return Files(given(uri=uri, format="fixed", record_bytes=record_bytes, split=split, if_exists=if_exists))


def items(values: Sequence[Any], *, partitions: int | ValueHandle | None = None) -> LiteralData:
    """A literal list of JSON records."""
    return LiteralData(given(items=list(values), partitions=partitions))


def range_(count: int | ValueHandle, *, partitions: int | ValueHandle | None = None) -> LiteralData:
    """The integers 0 .. count-1."""
    return LiteralData(given(range=count, partitions=partitions))
