"""The bytes of a split: whole files, ranges ending at line ends, and gzip."""

from __future__ import annotations

from ..errors import DataError
from ..files import FileInfo, map_file, read_range
from .options import FileSplit

Content = bytes | memoryview
_SLACK = 64 << 10
"""Bytes read beyond a split's stop at first, in the hope that its last line ends there."""


def info_of(split: FileSplit) -> FileInfo:
    return FileInfo(split.uri, split.size, split.version)


def whole_content(split: FileSplit) -> Content:
    """The whole file, unpacked when it is gzip; a local file that is not gzip is mapped, not copied."""
    return _unpacked(split) if split.options.gzip else map_file(info_of(split))


def line_content(split: FileSplit) -> tuple[int, memoryview]:
    """The lines whose first byte lies in the split, each as it is in the file, and the offset of the first one.

    Offsets within gzip are those of the unpacked bytes. A line ends behind its `\\n`, or at the end of the file.
    """
    if split.options.gzip:
        return 0, memoryview(_unpacked(split))
    if split.stop <= split.start:
        return split.start, memoryview(b"")
    base = max(split.start - 1, 0)
    data = read_range(info_of(split), base, min(split.stop + _SLACK, split.size))
    first = 0 if split.start == 0 else data.find(b"\n", 0, split.stop - 1 - base) + 1
    if split.start > 0 and first == 0:
        return split.stop, memoryview(b"")
    if split.stop >= split.size:
        return base + first, memoryview(data)[first:]
    end = data.find(b"\n", split.stop - 1 - base) + 1
    if end:
        return base + first, memoryview(data)[first:end]
    return base + first, memoryview(data[first:] + _rest_of_line(split, base + len(data)))


def _rest_of_line(split: FileSplit, start: int) -> bytes:
    """What is left of a long line: from `start` to behind the next `\\n`, read in growing steps."""
    pieces, step = [], _SLACK
    while start < split.size:
        step = min(step * 2, 16 << 20)
        piece = read_range(info_of(split), start, min(start + step, split.size))
        end = piece.find(b"\n") + 1
        if end:
            pieces.append(piece[:end])
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def first_line(split: FileSplit) -> bytes:
    """The file's first line with its `\\n`."""
    start = FileSplit(split.uri, 0, min(1, split.size), split.size, split.version, split.options)
    return bytes(line_content(start)[1])


def _unpacked(split: FileSplit) -> bytes:
    import gzip
    import zlib

    packed = read_range(info_of(split), 0, split.size)
    try:
        return gzip.decompress(packed)
    except EOFError:
        raise DataError(f"{split.uri} is cut off: its gzip data has no end", "Copy or make the file again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{split.uri} is not sound gzip: {error}", "Write `compression: none` if it is not, or make it again."
        ) from None


def decoded(data: Content, split: FileSplit, offset: int) -> str:
    """`data`, which begins at `offset` of the split's file, as strict UTF-8."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {offset + error.start}" + (" of the unpacked data" if split.options.gzip else "")
        raise DataError(
            f"{split.uri} is not UTF-8 at {place}: {error.reason}", "Convert the file, for example with iconv."
        ) from None
