"""CSV as in RFC 4180, with `\\n` line ends on writing and `\\n` or `\\r\\n` on reading."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import DataError
from .content import decoded, first_line, line_content
from .options import FileSplit, WriteOptions
from .rows import Rows, plain

csv.field_size_limit(sys.maxsize)  # process-wide, and 128 KiB by default: a long field is not an error


def read_csv(split: FileSplit) -> list[Any]:
    """Dicts of str by the columns of the file's first line, or tuples of str without a header.

    Blank lines are skipped, except that the first line must name the columns; a byte order mark is dropped.
    """
    offset, data = line_content(split)
    text = decoded(data, split, offset)
    if split.start == 0:
        text = text.removeprefix("\ufeff")
    rows = _parsed(text, split)
    if not split.options.header:
        return [tuple(row) for row in rows if row]
    header = rows if split.start == 0 else _parsed(decoded(first_line(split), split, 0).removeprefix("\ufeff"), split)
    names = next(header, None)
    return _by_name(names, rows, split) if names is not None else []


def _parsed(text: str, split: FileSplit) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=split.options.delimiter, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        where = f"line {reader.line_num}" + (f" of the split at byte {split.start}" if split.start else "")
        raise DataError(
            f"{split.uri}, {where}, is not CSV: {error}",
            "Quote fields as in RFC 4180, and end lines with \\n or \\r\\n.",
        ) from None


def _by_name(names: list[str], rows: Iterator[list[str]], split: FileSplit) -> list[dict[str, str]]:
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"the first line of {split.uri} does not name its columns, each once: {names}",
            "Mend it, or write `header: false` to get tuples.",
        )
    records = []
    for position, row in enumerate(rows):
        if len(row) == len(names):
            records.append(dict(zip(names, row, strict=True)))
        elif row:
            place = f"record {position} of the split at byte {split.start}"
            raise DataError(
                f"{split.uri}, {place}, has {len(row)} fields, the header has {len(names)}",
                "Quote fields that contain the delimiter, or correct `delimiter`.",
            )
    return records


def encode_csv(rows: Rows, options: WriteOptions) -> str:
    """The rows as text, after a header when one is wanted and the names are known."""
    quoted = _quoting(options.delimiter)
    lines: list[str] = []
    if options.header and rows.names:
        lines.append(_line([quoted(name) for name in rows.names], options.delimiter))
    for position, row in enumerate(rows.values):
        lines.append(_line([quoted(_cell(plain(value), position)) for value in row], options.delimiter))
    return "".join(lines)


def _line(fields: Sequence[str], delimiter: str) -> str:
    """One record; a lone empty field is quoted, because a blank line is not a record."""
    return delimiter.join(fields) + "\n" if len(fields) != 1 or fields[0] else '""\n'


def _quoting(delimiter: str) -> Callable[[str], str]:
    special = re.compile(f'[{re.escape(delimiter)}"\r\n\ufeff]').search

    def quoted(field: str) -> str:
        return '"' + field.replace('"', '""') + '"' if special(field) else field

    return quoted


def _cell(value: Any, position: int) -> str:
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
    if isinstance(value, bytes | bytearray | memoryview | list | tuple | dict | set | frozenset):
        raise DataError(
            f"record {position}: a {type(value).__name__} does not fit into a CSV field",
            "Convert it to str first, or write jsonl or parquet.",
        )
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat() if isoformat else value)
