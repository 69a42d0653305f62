"""The location of a split's record in its file: computed from the file on request, not while it is read."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..record_location import RecordPlace
from .arrays import plan_npy
from .csv_rows import CsvParser
from .malformed_lines import LineNumbers, is_blank, split_lines
from .options import FileSplit
from .split_content import info_of, line_pieces

_SIZE = 4 << 20
"""Number of bytes read again at once."""


class Locator:
    """The locations of one split's records. Ascending positions take one pass over the split."""

    def __init__(self, split: FileSplit) -> None:
        self._split = split
        self._numbers = LineNumbers(split)
        self._first_row: int | None = None
        self._lines: Iterator[int] = iter(())
        self._position, self._line = -1, 0
        """The record that was found last, and the line of the split where it begins."""

    def place(self, position: int | None) -> RecordPlace:
        """Return the location of the record at a position of the split; None: the file, for the split as a whole.

        Raises the errors of reading the file.
        """
        split = self._split
        if position is None:
            return RecordPlace(uri=split.uri)
        if split.options.format in ("parquet", "npy", "fixed"):
            return RecordPlace(position, uri=split.uri, row=self._rows_before() + position)
        line = position if split.options.format == "text" else self._line_of(position)
        return msgspec.structs.replace(self._numbers.place(line), position=position)

    def _line_of(self, position: int) -> int:
        if self._position < 0 or position < self._position:
            self._lines, self._position = self._record_lines(), -1
        while self._position < position:
            self._line = next(self._lines, self._line)
            self._position += 1
        return self._line

    def _record_lines(self) -> Iterator[int]:
        """The line of the split where each record begins."""
        return _rows_of_csv(self._split) if self._split.options.format == "csv" else _json_lines(self._split)

    def _rows_before(self) -> int:
        if self._first_row is None:
            self._first_row = _rows_before(self._split)
        return self._first_row


def _json_lines(split: FileSplit) -> Iterator[int]:
    index = 0
    for _, data in line_pieces(split, _SIZE):
        for line in split_lines(bytes(data)):
            if not is_blank(line):
                yield index
            index += 1


def _rows_of_csv(split: FileSplit) -> Iterator[int]:
    """Rows that cannot be parsed count as records, too: an earlier row can be unparsable only if it was tolerated."""
    options = msgspec.structs.replace(split.options, tolerate=True)
    parser = CsvParser(line_pieces(split, _SIZE), msgspec.structs.replace(split, options=options))
    rows = parser.rows()
    if split.options.header and split.start == 0:
        next(rows, None)
    return (parser.begin for row in rows if row)


def _rows_before(split: FileSplit) -> int:
    """Rows of the file before the split."""
    match split.options.format:
        case "parquet":
            from .tables import rows_of_groups

            return 0 if split.options.gzip else sum(rows_of_groups(info_of(split))[: split.start])
        case "npy" if not split.options.gzip:
            layout = plan_npy(info_of(split))
            return (split.start - layout.offset) // layout.row_bytes if split.start and layout.row_bytes else 0
        case "fixed" if not split.options.gzip:
            return split.start // split.options.record_bytes
        case _:
            return 0
