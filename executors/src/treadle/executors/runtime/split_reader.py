"""The file splits of a task's partitions. Pieces of a remote file are fetched while others are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from treadle.primitives import formats
from treadle.primitives.encoding.references import Kind
from treadle.primitives.formats import FileSplit

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_END: Any = object()
_Pieces = tuple[Kind, Iterator[Any]]


class SplitReader:
    """Reads splits in pieces, as `formats.read_pieces` does.

    Of a remote file, one piece is fetched while the piece before it is used. The first piece of an announced split is
    fetched while the partition before it runs.
    """

    def __init__(self, size: int, *, whole_text: bool) -> None:
        """`size`: bytes of a piece. `whole_text`: a split is one str."""
        self._size, self._whole_text = size, whole_text
        self._coming: dict[FileSplit, _Pieces] = {}

    def expect(self, split: FileSplit) -> None:
        """Announce a split that will be read next, or after the announced ones. Errors are raised by its pieces."""
        if _is_remote(split):
            with suppress(RuntimeError):  # no room for a thread
                self._coming[split] = self._read(split)

    def read(self, split: FileSplit) -> _Pieces:
        """The kind of the records, and their pieces, which raise the errors of `formats.read_pieces`."""
        return self._coming.pop(split, None) or self._read(split)

    def _read(self, split: FileSplit) -> _Pieces:
        kind: Kind = "objects"
        pieces: Iterator[Any] = _text(split)
        if not self._whole_text:
            kind, pieces = formats.read_pieces(split, self._size)
        return kind, _ahead(pieces) if _is_remote(split) else pieces


def _is_remote(split: FileSplit) -> bool:
    from treadle.primitives.stores.input_files import is_local

    return not is_local(split.uri)


def _text(split: FileSplit) -> Iterator[list[str]]:
    yield [formats.read_text(split)]


def _ahead(pieces: Iterator[Any]) -> Iterator[Any]:
    """The pieces; the next piece, beginning with the first, is always being fetched.

    The thread has a stack of the usual size: it decodes, and decoders of nested values recurse.
    """
    from concurrent.futures import ThreadPoolExecutor

    thread = ThreadPoolExecutor(1, "read ahead")
    return _drained(thread, thread.submit(next, pieces, _END), pieces)


def _drained(thread: ThreadPoolExecutor, coming: Future[Any], pieces: Iterator[Any]) -> Iterator[Any]:
    with thread:
        while (piece := coming.result()) is not _END:
            coming = thread.submit(next, pieces, _END)
            yield piece
