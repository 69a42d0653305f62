"""Reading splits: each format gives one kind of partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..errors import DataError
from ..references import Kind
from .content import decoded, line_content
from .options import FileSplit


def read_split(split: FileSplit) -> tuple[Kind, Any]:
    """The records that begin in the split.

    text: list of str; jsonl: list of JSON values; csv: list of dicts of str by column, or of tuples of str without a
    header; parquet: pyarrow.Table; npy: array of the file's dtype; fixed: uint8 array of shape (rows, recordBytes).
    Arrays are read-only; those of local files are views of a mapping. Raises DataError for content that is not what
    the format says, MissingError or UsageError when the file is gone or changed.
    """
    match split.options.format:
        case "text":
            return "objects", _read_lines(split)
        case "jsonl":
            return "objects", _read_json_lines(split)
        case "csv":
            from .csv import read_csv

            return "objects", read_csv(split)
        case "parquet":
            from .tables import read_parquet

            return "table", read_parquet(split)
        case "npy":
            from .arrays import read_npy

            return "array", read_npy(split)
        case "fixed":
            from .arrays import read_fixed

            return "array", read_fixed(split)


def read_text(split: FileSplit) -> str:
    """The split's lines as they are in the file, line ends included (`whole: true`)."""
    offset, data = line_content(split)
    return decoded(data, split, offset)


def _read_lines(split: FileSplit) -> list[str]:
    text = read_text(split)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last newline is no line
    return lines


def _read_json_lines(split: FileSplit) -> list[Any]:
    """One JSON value a line (RFC 8259, so no NaN); blank lines are skipped."""
    offset, data = line_content(split)
    lines = bytes(data).split(b"\n")
    if not lines[-1]:
        lines.pop()
    decode = msgspec.json.Decoder().decode
    try:
        return list(map(decode, lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_decode_slowly(lines, split, offset))


def _decode_slowly(lines: list[bytes], split: FileSplit, offset: int) -> Iterator[Any]:
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _bad_line(split, number, offset, error) from None
        offset += len(line) + 1


def _bad_line(split: FileSplit, number: int, offset: int, error: Exception) -> DataError:
    line = f"line {number}" if split.start == 0 else f"line {number} of the split at byte {split.start}"
    hint = "Format jsonl wants one JSON value on each line, in UTF-8, without NaN and without a byte order mark."
    return DataError(f"{split.uri}, {line}, which begins at byte {offset}, is not JSON: {error}", hint)
