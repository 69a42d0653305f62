"""CSV as in RFC 4180, with `\\n` line ends on writing and `\\n` or `\\r\\n` on reading."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Any
from uuid import UUID

from ..encoding.tabular import conversion, type_name
from ..errors import DataError
from .content import Content, decoded, first_line, line_pieces
from .options import FileSplit, WriteOptions
from .rows import Rows, plain

csv.field_size_limit(sys.maxsize)  # process-wide, and 128 KiB by default: a long field is not an error
_BATCH_RECORDS, _BATCH_CHARACTERS = 1024, 1 << 18
"""Of a list of records, at most."""
_ROWS = 1 << 12
"""Written at a time."""


def read_csv(split: FileSplit, size: int) -> Iterator[list[Any]]:
    """Dicts of str by the columns of the file's first line, or tuples of str without a header, in short lists.

    The file is read about `size` bytes at a time. Blank lines are skipped, except that the first line must name the
    columns; a byte order mark is dropped.
    """
    rows = _parsed(line_pieces(split, size), split)
    if not split.options.header:
        yield from _batched(tuple(row) for row in rows if row)
        return
    names = next(rows if split.start == 0 else _parsed([(0, first_line(split))], split), None)
    if names is not None:
        yield from _batched(_by_name(names, rows, split))


def _batched(records: Iterator[Any]) -> Iterator[list[Any]]:
    """The records as lists, short ones while records are long; who gets them may change them."""
    size = 1
    while batch := list(islice(records, size)):
        fields = batch[-1].values() if isinstance(batch[-1], dict) else batch[-1]
        size = max(1, min(2 * size, _BATCH_RECORDS, _BATCH_CHARACTERS // (1 + sum(map(len, fields)))))
        yield batch


def _parsed(pieces: Iterable[tuple[int, Content]], split: FileSplit) -> Iterator[list[str]]:
    """The rows of whole lines, which come in pieces with their offset in the file."""
    lines = chain.from_iterable(io.StringIO(_text(data, split, offset), newline="\n") for offset, data in pieces)
    reader = csv.reader(lines, delimiter=split.options.delimiter, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        where = f"line {reader.line_num}" + (f" of the split at byte {split.start}" if split.start else "")
        raise DataError(
            f"{split.uri}, {where}, is not CSV: {error}",
            "Quote fields as in RFC 4180, and end lines with \\n or \\r\\n.",
        ) from None


def _text(data: Content, split: FileSplit, offset: int) -> str:
    text = decoded(data, split, offset)
    return text if offset else text.removeprefix("\ufeff")


def _by_name(names: list[str], rows: Iterator[list[str]], split: FileSplit) -> Iterator[dict[str, str]]:
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"the first line of {split.uri} does not name its columns, each once: {names}",
            "Mend it, or write `header: false` to get tuples.",
        )
    for position, row in enumerate(rows):
        if len(row) == len(names):
            yield dict(zip(names, row, strict=True))
        elif row:
            place = f"record {position} of the split at byte {split.start}"
            raise DataError(
                f"{split.uri}, {place}, has {len(row)} fields, the header has {len(names)}",
                "Quote fields that contain the delimiter, or correct `delimiter`.",
            )


def encode_csv(rows: Rows, options: WriteOptions) -> str:
    """The rows as text, after a header when one is wanted and the names are known."""
    lines: list[str] = []
    if options.header and rows.names:
        lines.append(line(list(map(quoting(options.delimiter), rows.names)), options.delimiter))
    values, position = iter(rows.values), 0
    while some := list(islice(values, _ROWS)):
        lines += _lines(some, options.delimiter, position)
        position += len(some)
    return "".join(lines)


def _lines(rows: list[Sequence[Any]], delimiter: str, start: int) -> Iterator[str]:
    """A column at a time; row by row where a value does not fit, so that the first such record is found."""
    try:
        columns = [_fields(column, delimiter, start) for column in zip(*rows, strict=True)]
    except DataError:
        quoted = quoting(delimiter)
        for position, row in enumerate(rows, start):
            yield line([quoted(cell(plain(value), position)) for value in row], delimiter)
        return
    for fields in zip(*columns, strict=True) if columns else rows:
        yield line(fields, delimiter)


def _fields(column: Sequence[Any], delimiter: str, start: int) -> Sequence[str]:
    """The values as fields. What needs no quotes is told of all at once."""
    kinds = set(map(type, column))
    if kinds == {str}:
        texts = column
    elif kinds == {int} or kinds == {float}:
        texts = list(map(repr, column))
    else:
        texts = [cell(plain(value), position) for position, value in enumerate(column, start)]
    return list(map(quoting(delimiter), texts)) if re.search(special(delimiter), "".join(texts)) else texts


def line(fields: Sequence[str], delimiter: str) -> str:
    """One record; a lone empty field is quoted, because a blank line is not a record."""
    return delimiter.join(fields) + "\n" if len(fields) != 1 or fields[0] else '""\n'


def special(delimiter: str) -> str:
    """What a field is quoted for, as a regular expression of Python and of RE2."""
    return f'[{re.escape(delimiter)}"\r\n\ufeff]'


def quoting(delimiter: str) -> Callable[[str], str]:
    """What makes a text a field."""
    is_special = re.compile(special(delimiter)).search

    def quoted(field: str) -> str:
        return '"' + field.replace('"', '""') + '"' if is_special(field) else field

    return quoted


def cell(value: Any, position: int) -> str:
    """A value of the record at `position` as text. Raises DataError for a value of a type that has no text form."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)  # of an enum, too, the number
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat() if value == value else ""  # pandas' NaT is a datetime that equals nothing
    raise DataError(f"record {position}: CSV has no text for a value of type {type_name(value)}", conversion(value))
