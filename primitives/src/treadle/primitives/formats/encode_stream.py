"""Encoding a partition that does not fit into memory, piece by piece, to the same bytes as `encode_part`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ..encoding import codec
from ..encoding.references import Kind
from ..errors import DataError
from ..stores.atomic_files import Buffer
from .encode import encode_part
from .options import WriteOptions
from .rows import tabulate


def encode_pieces(kind: Kind, pieces: Iterable[Any], rows: int, options: WriteOptions) -> Iterator[Buffer]:
    """Yield the bytes of one file as they are produced. `pieces` together are the partition, of `rows` > 0 records.

    Parquet is made a row group at a time. Raises DataError for the first record that the format cannot hold.
    """
    if options.format == "parquet":
        from .tables import encode_tables

        yield from encode_tables(_tables(kind, pieces, options))
        return
    start = width = 0
    for piece in pieces:
        count = codec.rows(kind, piece)
        if not count:
            continue
        if options.format == "fixed" and kind == "objects":
            width = _checked_width(piece[0], start, width)
        yield from _encoded(kind, piece, start, rows, options)
        if not start and options.format == "csv":
            options = _without_header(kind, piece, options)
        start += count


def _encoded(kind: Kind, piece: Any, start: int, rows: int, options: WriteOptions) -> Iterable[Buffer]:
    if options.format == "npy":
        from .arrays import encode_npy

        head, data = encode_npy(kind, piece, rows)
        return (data,) if start else (head, data)
    with _counted_from(start):
        return encode_part(kind, piece, options)


def _tables(kind: Kind, pieces: Iterable[Any], options: WriteOptions) -> Iterator[Any]:
    from .tables import as_table

    start = 0
    for piece in pieces:
        with _counted_from(start):
            table = as_table(kind, piece, options)
        yield table
        start += codec.rows(kind, piece)


@contextmanager
def _counted_from(start: int) -> Iterator[None]:
    """Shift record positions in errors from the piece to the partition."""
    try:
        yield
    except DataError as error:
        if not start:
            raise
        raise DataError(f"{error.message} (counted from record {start:,})", error.hint) from None


def _without_header(kind: Kind, piece: Any, options: WriteOptions) -> WriteOptions:
    """Return the options for pieces after the first, which have the columns of the first."""
    names = tabulate(kind, piece, [name for name, _ in options.columns]).names
    return msgspec.structs.replace(options, header=False, columns=tuple((name, "string") for name in names))


def _checked_width(record: Any, position: int, width: int) -> int:
    """Return the byte length of a record, which must equal that of earlier records. Encoding refuses other types."""
    if not isinstance(record, bytes | bytearray):
        return width
    if position and len(record) != width:
        raise DataError(
            f"record {position} is {len(record)} bytes; format fixed takes bytes, all of one length",
            "Mend the stage's function.",
        )
    return len(record)
