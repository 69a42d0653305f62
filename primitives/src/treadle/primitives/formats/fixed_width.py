"""Rows of one length: how many there are, and where runs of them are cut."""

from __future__ import annotations

from itertools import pairwise

from ..errors import DataError, UsageError


def fixed_rows(uri: str, size: int, record_bytes: int) -> int:
    """Return the rows of a `fixed` file of `size` bytes. Raises DataError when the last row is incomplete."""
    if record_bytes < 1:
        raise UsageError("format fixed needs recordBytes", "Write the length of one record in bytes.")
    if size % record_bytes:
        raise DataError(
            f"{uri} has {size} bytes, which is no multiple of recordBytes {record_bytes}",
            "Correct recordBytes, or make the file again if it is cut off.",
        )
    return size // record_bytes


def row_ranges(offset: int, rows: int, row_bytes: int, split: int) -> list[tuple[int, int]]:
    """Return where balanced runs of the rows, of about `split` bytes, start and stop; at least one."""
    count = max(1, min(rows, -(-rows * row_bytes // split)))
    cuts = [offset + rows * index // count * row_bytes for index in range(count + 1)]
    return list(pairwise(cuts))
