"""CSV as in RFC 4180, with `\\n` line ends on writing and `\\n` or `\\r\\n` on reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

from ..encoding.tabular import conversion, type_name
from ..errors import DataError
from .csv_rows import CsvParser, column_names
from .malformed_lines import Unparsable
from .options import FileSplit, WriteOptions
from .rows import Rows, plain
from .split_content import first_line, line_pieces

_BATCH_RECORDS, _BATCH_CHARACTERS = 1024, 1 << 18
"""Maximum number of records, and of characters, in one list."""
_ROWS = 1 << 12
"""Number of rows encoded at once."""


def read_csv(split: FileSplit, size: int) -> Iterator[list[Any]]:
    """Dicts of str by the columns of the file's first line, or tuples of str without a header, in short lists.

    The file is read about `size` bytes at a time. Blank lines are skipped, except that the first line must name the
    columns; a byte order mark is dropped.
    """
    parser = CsvParser(line_pieces(split, size), split)
    rows = parser.rows()
    if not split.options.header:
        yield from _batched(row if type(row) is Unparsable else tuple(row) for row in rows if row)
        return
    names = next(rows if split.start == 0 else CsvParser([(0, first_line(split))], split).rows(), None)
    if names is not None:
        yield from _batched(_by_name(column_names(names, split), rows, parser))


def _batched(records: Iterator[Any]) -> Iterator[list[Any]]:
    """Group the records into lists, short lists while records are long. The caller may change the lists."""
    size = 1
    while batch := list(islice(records, size)):
        size = max(1, min(2 * size, _BATCH_RECORDS, _BATCH_CHARACTERS // (1 + _length(batch[-1]))))
        yield batch


def _length(record: Any) -> int:
    if type(record) is Unparsable:
        return len(record.text)
    return sum(map(len, record.values() if isinstance(record, dict) else record))


def _by_name(names: list[str], rows: Iterator[Any], parser: CsvParser) -> Iterator[Any]:
    for row in rows:
        if type(row) is Unparsable:
            yield row
        elif len(row) == len(names):
            yield dict(zip(names, row, strict=True))
        elif row:
            yield parser.misfit(row, names)


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
    """Encode column by column, or row by row where a value does not fit, to find the first such record."""
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
    """The values as fields. One search finds that a whole column needs no quotes."""
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
    """The pattern of characters that require quotes, as a regular expression of Python and of RE2."""
    return f'[{re.escape(delimiter)}"\r\n\ufeff]'


def quoting(delimiter: str) -> Callable[[str], str]:
    """Return the function that turns a text into a field."""
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
        return int.__repr__(value)  # for an enum, too, the number
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat() if value == value else ""  # pandas' NaT is a datetime that is not equal to itself
    raise DataError(f"record {position}: CSV has no text for a value of type {type_name(value)}", conversion(value))
