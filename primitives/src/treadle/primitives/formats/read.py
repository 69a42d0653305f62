"""Reading splits: each format gives one kind of partition."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from ..encoding.codec import concat
from ..encoding.references import Kind
from ..errors import DataError
from .malformed_lines import Judge, LineNumbers, is_blank, judge_of, split_lines
from .options import FileSplit
from .split_content import decoded, line_content, line_pieces


def read_split(split: FileSplit) -> tuple[Kind, Any]:
    """The records that begin in the split, as one value. Raises the errors of `read_pieces` and of its pieces."""
    kind, pieces = read_pieces(split, sys.maxsize)
    return kind, concat(kind, list(pieces) or [[]])


def read_pieces(split: FileSplit, size: int) -> tuple[Kind, Iterator[Any]]:
    """The records that begin in the split, in pieces of about `size` bytes or less; an empty list of objects has no
    piece.

    text: list of str, or with `table` a pyarrow.Table of one column `line`; jsonl: list of JSON values; csv: list of
    dicts of str by column, or of tuples of str without a header; parquet: pyarrow.Table; npy: array of the file's
    dtype; fixed: uint8 array of shape (rows, recordBytes).
    Arrays are read-only; arrays of local files are one view of a mapping. A piece is read when it is wanted. The pieces
    raise DataError for content that does not match the format, MissingError or UsageError when the file is gone or
    changed, and StoreError.
    """
    match split.options.format:
        case "text" if split.options.table:
            from .lines import read_line_tables

            return "table", read_line_tables(split, size)
        case "text":
            return "objects", _read_lines(split, size)
        case "jsonl":
            return "objects", _read_json_lines(split, size)
        case "csv":
            from .csv import read_csv

            return "objects", read_csv(split, size)
        case "parquet":
            from .tables import read_parquet

            return "table", read_parquet(split, size)
        case "npy":
            from .arrays import read_npy

            return "array", read_npy(split, size)
        case "fixed":
            from .arrays import read_fixed

            return "array", read_fixed(split, size)


def read_text(split: FileSplit) -> str:
    """Return the split's unchanged lines, line ends included (`whole: true`)."""
    offset, data = line_content(split)
    return decoded(data, split, offset)


def _read_lines(split: FileSplit, size: int) -> Iterator[list[Any]]:
    numbers, index = LineNumbers(split), 0
    for offset, data in line_pieces(split, size):
        try:
            text = decoded(data, split, offset)
        except DataError:
            if not split.options.tolerate:
                raise
            lines: list[Any] = list(_decoded_each(split_lines(bytes(data)), numbers, index))
        else:
            lines = _lines_of(text)
        index += len(lines)
        yield lines


def _lines_of(text: str) -> list[Any]:
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines: list[Any] = text.split("\n")
    if not lines[-1]:
        lines.pop()  # bytes after the last newline are not a line
    return lines


def _decoded_each(lines: list[bytes], numbers: LineNumbers, first: int) -> Iterator[Any]:
    for index, line in enumerate(lines, first):
        try:
            yield line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            what = f"is not UTF-8: {error.reason}"
            yield numbers.unparsable(index, line, what, "Convert the file, for example with iconv.")


def _read_json_lines(split: FileSplit, size: int) -> Iterator[list[Any]]:
    """One JSON value a line (RFC 8259, so no NaN); blank lines are skipped."""
    decode = msgspec.json.Decoder().decode
    numbers, judge, index = LineNumbers(split), judge_of(split), 0
    for offset, data in line_pieces(split, size):
        lines = split_lines(bytes(data))
        try:
            values = list(map(decode, lines))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            values = list(_decode_slowly(lines, numbers, judge, index, offset))
        yield values
        index += len(lines)


def _decode_slowly(lines: list[bytes], numbers: LineNumbers, judge: Judge, first: int, offset: int) -> Iterator[Any]:
    """The lines' values; the first line is the split's line `first`, and begins at the offset."""
    decode = msgspec.json.Decoder().decode
    for index, line in enumerate(lines, first):
        if not is_blank(line):
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                what = f"which begins at byte {offset}, is not JSON: {error}"
                yield judge(numbers.unparsable(index, line, what, _JSON_LINES))
        offset += len(line) + 1


_JSON_LINES = "Format jsonl wants one JSON value on each line, in UTF-8, without NaN and without a byte order mark."
