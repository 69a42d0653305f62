"""CSV of Arrow tables: columns become text as a whole, by Arrow where its text equals that of `csv`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .csv import cell, line, quoting, special
from .options import WriteOptions
from .rows import plain, tabulate

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 16
"""Number of rows encoded at once."""


def encode_csv_table(table: pa.Table | pa.RecordBatch, options: WriteOptions) -> Iterator[bytes | memoryview]:
    """The bytes that `encode_csv` makes of the table's rows; at least one column.

    Raises DataError for a value that does not fit; it names a column, perhaps not that of the first such record.
    """
    names = tabulate("table", table.slice(0, 0), [name for name, _ in options.columns]).names
    present = table.schema.names
    if names != tuple(present):
        table = table.select([present.index(name) for name in names])
    if options.header:
        quoted = quoting(options.delimiter)
        yield line(list(map(quoted, names)), options.delimiter).encode()
    start = 0
    for batch in _batches(table):
        yield _content(_lines(batch.columns, options.delimiter, start))
        start += batch.num_rows


def _batches(table: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    whole = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    return (batch for batch in whole.to_batches(max_chunksize=_ROWS) if batch.num_rows)


def _lines(columns: list[pa.Array], delimiter: str, start: int) -> pa.Array:
    """One text for each row, with its line end; a lone empty field is quoted: a blank line is not a record."""
    from pyarrow import compute

    fields = [_fields(column, delimiter, start) for column in columns]
    if len(fields) == 1:
        fields = [compute.if_else(compute.equal(fields[0], ""), _text('""'), fields[0])]
    joined = compute.binary_join_element_wise(*fields, _text(delimiter))
    return compute.binary_join_element_wise(joined, _text(""), _text("\n"))


def _text(value: str) -> pa.Scalar[Any]:
    import pyarrow as pa

    return pa.scalar(value, pa.large_string())


def _fields(column: pa.Array, delimiter: str, start: int) -> pa.Array:
    """The fields as large strings, quoted where necessary; null becomes an empty field."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_written_alike(column.type):
        texts = column.cast(pa.large_string())
    else:
        cells = (cell(plain(value), start + index) for index, value in enumerate(column.to_pylist()))
        texts = pa.array(cells, pa.large_string())
    quoted = _quoted(texts, delimiter)
    return compute.fill_null(quoted, "") if quoted.null_count else quoted


def _is_written_alike(kind: pa.DataType) -> bool:
    """Return whether Arrow writes a value of this type as `cell` does."""
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return True
    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind))


def _quoted(texts: pa.Array, delimiter: str) -> pa.Array:
    from pyarrow import compute

    found = compute.match_substring_regex(texts, special(delimiter))
    if not compute.any(found).as_py():
        return texts
    doubled = compute.replace_substring(texts, '"', '""')
    return compute.if_else(found, compute.binary_join_element_wise(_text('"'), doubled, _text('"'), _text("")), texts)


def _content(texts: pa.Array) -> memoryview:
    """The bytes of all texts, one after the other, as Arrow has them."""
    import numpy as np

    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]]
