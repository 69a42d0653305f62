"""Cutting files into splits. The cuts depend on the file, its options and `split` only."""

from __future__ import annotations

from itertools import pairwise

from ..errors import UsageError
from ..stores.input_files import FileInfo, read_range
from .arrays import fixed_rows, plan_npy, row_ranges
from .options import FileSplit, ReadOptions

_SCAN = 8 << 20


def plan_splits(info: FileInfo, options: ReadOptions, split: int) -> list[FileSplit]:
    """Return balanced splits of at most about `split` bytes, at least one; an empty file is one empty split.

    Text and JSON lines are cut anywhere; a record belongs to the split in which it begins. `fixed` and npy are cut
    between rows, Parquet between row groups (by their unpacked size). Gzip, CSV that contains a quote, and npy in
    Fortran order are one split. Raises DataError when the file does not have its declared format.
    """
    if split < 1:
        raise UsageError(f"split must be at least 1 byte, not {split}", "Write a size such as 64MiB.")
    return [
        FileSplit(info.uri, start, stop, info.size, info.version, options)
        for start, stop in _ranges(info, options, split)
    ]


def _ranges(info: FileInfo, options: ReadOptions, split: int) -> list[tuple[int, int]]:
    whole = [(0, info.size)]
    if options.gzip:
        return whole
    match options.format:
        case "fixed":
            return row_ranges(0, fixed_rows(info.uri, info.size, options.record_bytes), options.record_bytes, split)
        case "npy":
            layout = plan_npy(info)
            if layout.fortran or layout.row_bytes == 0:
                return whole
            return row_ranges(layout.offset, layout.shape[0], layout.row_bytes, split)
        case "parquet":
            from .tables import row_group_sizes

            return pack(row_group_sizes(info), split)
        case "csv" if info.size > split and has_quote(info):
            return whole
        case _:
            return row_ranges(0, info.size, 1, split)


def pack(sizes: list[int], split: int) -> list[tuple[int, int]]:
    """Consecutive groups [start, stop) of the sizes, about `split` each: a size goes where its middle falls."""
    total = sum(sizes)
    count = max(1, -(-total // split))
    starts, before, last = [], 0, -1
    for index, size in enumerate(sizes):
        bucket = min((2 * before + size) * count // (2 * total), count - 1) if total else 0
        if bucket != last:
            starts.append(index)
            last = bucket
        before += size
    return list(pairwise([*starts, len(sizes)])) or [(0, 0)]


def has_quote(info: FileInfo) -> bool:
    r"""Return whether the file contains a quote: only without one does every `\n` certainly end a record."""
    starts = range(0, info.size, _SCAN)
    return any(b'"' in read_range(info, start, min(start + _SCAN, info.size)) for start in starts)
