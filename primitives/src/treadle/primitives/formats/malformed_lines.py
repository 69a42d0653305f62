"""Malformed lines: refused, or kept as records that failed before any function saw them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ..errors import DataError
from ..record_location import RecordPlace
from ..stores.input_files import read_range
from .options import FileSplit
from .split_content import info_of

TEXT_LIMIT = 4096
"""Number of a line's characters that are kept."""
_COUNTED = 256 << 20
"""Bytes before a split in which lines are counted. If there are more, the count begins at the split."""
_STEP = 8 << 20


class Unparsable(Struct, frozen=True):
    """Takes the place of a record that could not be parsed, where a stage tolerates that."""

    text: str
    """The line or lines, at most `TEXT_LIMIT` characters; bytes that are not UTF-8 as `\\xff`."""
    message: str
    """File, line, and the defect."""
    hint: str

    @property
    def error(self) -> DataError:
        return DataError(self.message, self.hint)


class LineNumbers:
    """The locations of a split's lines. Bytes before the split are counted once, at the first call."""

    def __init__(self, split: FileSplit) -> None:
        self._split = split
        self._before: int | None = None

    def place(self, index: int) -> RecordPlace:
        """Return the location of the split's line `index`, from 0. Raises the errors of `read_range`."""
        split = self._split
        first = 0 if split.options.gzip else split.start
        if first > _COUNTED:
            return RecordPlace(uri=split.uri, line=index + 1, from_byte=first)
        if self._before is None:
            self._before = _lines_before(split) if first else 0
        return RecordPlace(uri=split.uri, line=self._before + index + 1)

    def unparsable(self, index: int, data: bytes | str, what: str, hint: str) -> Unparsable:
        """Return the substitute for line `index` of the split; `what` is the defect, such as `is not JSON: ...`."""
        text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
        text = text.encode("utf-8", "backslashreplace").decode()
        text = text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 3] + "..."
        return Unparsable(text, f"{self.place(index).text}, {what}", hint)


def _lines_before(split: FileSplit) -> int:
    """Lines that begin before the split's first one; a line that crosses the split's start belongs before it."""
    info, count = info_of(split), 0
    for start in range(0, split.start, _STEP):
        count += bytes(read_range(info, start, min(start + _STEP, split.start))).count(b"\n")
    ends_line = bytes(read_range(info, split.start - 1, split.start)) == b"\n"
    return count if ends_line else count + 1


Judge = Callable[[Unparsable], object]
"""Handles an unparsable line: returns its substitute record, or raises."""


def judge_of(split: FileSplit) -> Judge:
    return _kept if split.options.tolerate else _raised


def _kept(line: Unparsable) -> Unparsable:
    return line


def _raised(line: Unparsable) -> object:
    raise line.error


def split_lines(data: bytes) -> list[bytes]:
    """The lines without their `\\n`; bytes after the last newline are not a line."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def is_blank(line: bytes) -> bool:
    """Return whether a line of a JSON lines file is blank."""
    return not line or line.isspace()
