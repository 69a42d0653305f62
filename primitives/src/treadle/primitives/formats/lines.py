"""Lines of text as an Arrow table, made without a Python object for each."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..lazy_import import pyarrow
from .options import FileSplit
from .split_content import decoded, line_pieces

if TYPE_CHECKING:
    import pyarrow as pa

LINE = "line"
"""Name of the only column."""
_has_return = re.compile(b"\r").search
"""Searches views too, without a copy; a search for one byte takes a tenth of the time of one for two."""


def read_line_tables(split: FileSplit, size: int) -> Iterator[pa.Table]:
    """The lines that begin in the split, in tables of one column `line` of large strings; at least one table.

    Raises DataError for bytes that are not UTF-8, UsageError without pyarrow.
    """
    pa = pyarrow("`table`")
    empty = True
    for offset, data in line_pieces(split, size):
        empty = False
        yield pa.table({LINE: _lines(split, offset, data)})
    if empty:
        yield pa.table({LINE: pa.array([], pa.large_string())})


def _lines(split: FileSplit, offset: int, data: memoryview) -> pa.Array:
    """The lines of some bytes; bytes after the last newline are not a line."""
    import pyarrow as pa
    from pyarrow import compute

    content = bytes(data).replace(b"\r\n", b"\n") if _has_return(data) else data
    ends = pa.py_buffer(struct.pack("<qq", 0, len(content)))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(content)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        decoded(data, split, offset)  # its error names the line
        raise
    lines = compute.split_pattern(text, "\n").values
    return lines[:-1] if data[-1] == ord("\n") else lines
