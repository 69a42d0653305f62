"""The bytes of a split: whole files, ranges ending at line ends, and gzip."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import msgspec

from ..errors import DataError
from ..stores.input_files import FileInfo, is_local, map_file, read_range
from ..stores.spool import spooled
from .options import FileSplit

Content = bytes | memoryview
_SLACK = 64 << 10
"""Number of bytes first read beyond a split's stop, in the hope that its last line ends there."""
_NEAR, _FAR = 1 << 20, 8 << 20
"""Number of gzip bytes read at once: a store wants few requests."""
_UNPACKED = 8 << 20
"""Maximum number of bytes unpacked from gzip at once."""


class ListedFile(io.RawIOBase):
    """A listed file, read by ranges. Reads raise the errors of `read_range`."""

    def __init__(self, info: FileInfo) -> None:
        self._info = info
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._info.size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._info.size if size < 0 else min(self._position + size, self._info.size)
        data = read_range(self._info, self._position, max(stop, self._position))
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the buffer that io passes
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def info_of(split: FileSplit) -> FileInfo:
    return FileInfo(split.uri, split.size, split.version)


def whole_content(split: FileSplit) -> Content:
    """The whole file, mapped if it is local; unpacked gzip content goes to a temporary file, and is mapped too."""
    return memoryview(spooled(_unpacked(split))) if split.options.gzip else map_file(info_of(split))


def line_content(split: FileSplit) -> tuple[int, memoryview]:
    """Return the lines whose first byte is in the split, unchanged, and the offset of the first line.

    Offsets within gzip count unpacked bytes. A line ends after its `\\n`, or at the end of the file.
    """
    if split.options.gzip:
        return 0, memoryview(b"".join(_unpacked(split)))
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


def line_pieces(split: FileSplit, size: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the content of `line_content`, about `size` bytes at a time; each piece holds whole lines."""
    pieces = _cut_at_lines(_unpacked(split, size)) if split.options.gzip else map(line_content, _cut(split, size))
    return (piece for piece in pieces if piece[1])


def _cut(split: FileSplit, size: int) -> Iterator[FileSplit]:
    for start in range(split.start, split.stop, size):
        yield msgspec.structs.replace(split, start=start, stop=min(start + size, split.stop))


def _cut_at_lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, memoryview]]:
    """Cut the bytes again, after line ends."""
    offset, held = 0, [b""]
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            lines = b"".join([*held, piece[:end]])
            yield offset, memoryview(lines)
            offset, held = offset + len(lines), []
        held.append(piece[end:])
    yield offset, memoryview(b"".join(held))


def _rest_of_line(split: FileSplit, start: int) -> bytes:
    """The rest of a long line: from `start` to behind the next `\\n`, read in growing steps."""
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


def _unpacked(split: FileSplit, size: int = _UNPACKED) -> Iterator[bytes]:
    """Unpack gzip, at most `size` bytes at a time."""
    import gzip
    import zlib

    packed = io.BufferedReader(ListedFile(info_of(split)), _NEAR if is_local(split.uri) else _FAR)
    try:
        with gzip.GzipFile(fileobj=packed) as file:
            while data := file.read(min(size, _UNPACKED)):
                yield data
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
