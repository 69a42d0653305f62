"""The rows of CSV files, and substitutes for rows that cannot be parsed."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import DataError
from .malformed_lines import LineNumbers, Unparsable, judge_of
from .options import FileSplit
from .split_content import Content, decoded

csv.field_size_limit(sys.maxsize)  # process-wide, and 128 KiB by default: a long field is not an error
_QUOTES = "Quote fields as in RFC 4180, and end lines with \\n or \\r\\n."


class CsvParser:
    """Parses whole lines, which come in pieces with their offset in the file."""

    def __init__(self, pieces: Iterable[tuple[int, Content]], split: FileSplit) -> None:
        self._split = split
        self._numbers, self._judge = LineNumbers(split), judge_of(split)
        self._held: list[str] = []
        """The lines of the current row, when unparsable rows are kept."""
        self._torn = False
        """Some bytes were not UTF-8."""
        self.begin = 0
        """The line of the split where the last row begins, when unparsable rows are kept."""
        lines = self._recorded(pieces) if split.options.tolerate else self._lines(pieces)
        self._reader = csv.reader(lines, delimiter=split.options.delimiter, strict=True)

    def rows(self) -> Iterator[Any]:
        """Lists of str, empty ones for blank lines; `Unparsable` where the split's options tolerate that.

        Raises DataError for a row that is not CSV.
        """
        if self._split.options.tolerate:
            yield from self._tolerated()
            return
        try:
            yield from self._reader
        except csv.Error as error:
            raise self._not_csv(self._reader.line_num - 1, error).error from None

    def misfit(self, row: list[str], names: list[str]) -> object:
        """Return the substitute for the last row, whose width differs from the header's. Raises DataError if not
        tolerated."""
        index = self._reader.line_num - 1 - sum(field.count("\n") for field in row)
        what = f"has {len(row)} fields, the header has {len(names)}"
        hint = "Quote fields that contain the delimiter, or correct `delimiter`."
        return self._judge(self._numbers.unparsable(index, "".join(self._held), what, hint))

    def _tolerated(self) -> Iterator[Any]:
        while True:
            self.begin = self._reader.line_num
            self._held.clear()
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield self._not_csv(self.begin, error)
            else:
                yield self._torn_row(self.begin) if self._torn and _has_surrogates(row) else row

    def _not_csv(self, index: int, error: csv.Error) -> Unparsable:
        return self._numbers.unparsable(index, "".join(self._held), f"is not CSV: {error}", _QUOTES)

    def _torn_row(self, index: int) -> Unparsable:
        data = "".join(self._held).encode("utf-8", "surrogateescape")
        return self._numbers.unparsable(index, data, "is not UTF-8", "Convert the file, for example with iconv.")

    def _lines(self, pieces: Iterable[tuple[int, Content]]) -> Iterator[str]:
        for offset, data in pieces:
            yield from io.StringIO(self._text(data, offset), newline="\n")

    def _recorded(self, pieces: Iterable[tuple[int, Content]]) -> Iterator[str]:
        for line in self._lines(pieces):
            self._held.append(line)
            yield line

    def _text(self, data: Content, offset: int) -> str:
        try:
            text = decoded(data, self._split, offset)
        except DataError:
            if not self._split.options.tolerate:
                raise
            self._torn, text = True, str(data, "utf-8", "surrogateescape")
        return text if offset else text.removeprefix("\ufeff")


def _has_surrogates(row: list[str]) -> bool:
    return any("\ud800" <= char <= "\udfff" for field in row for char in field)


def column_names(names: Any, split: FileSplit) -> list[str]:
    """The names in a file's first row. Raises DataError unless it names each column once."""
    if type(names) is Unparsable:
        raise names.error
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"the first line of {split.uri} does not name its columns, each once: {names}",
            "Mend it, or write `header: false` to get tuples.",
        )
    found: list[str] = names
    return found
