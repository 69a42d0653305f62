"""Parquet, through pyarrow, which is imported here only."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..encoding.codec import Sink
from ..encoding.references import Kind
from ..errors import DataError, UsageError
from ..lazy_import import pyarrow
from ..stores.atomic_files import Buffer
from ..stores.input_files import FileInfo, is_local, read_range
from ..stores.store_errors import border
from .options import FileSplit, WriteOptions
from .rows import Rows, array_names, check_columns, first_failing, plain, tabulate
from .split_content import ListedFile, info_of, whole_content

if TYPE_CHECKING:
    import pyarrow as pa

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int64": (int,),
    "float64": (float, int),
    "boolean": (bool,),
    "binary": (bytes, bytearray, memoryview),
    "timestamp": (datetime.datetime,),
    "date": (datetime.date,),
}


def _libraries() -> tuple[Any, Any]:
    return pyarrow("Parquet"), pyarrow("Parquet", "pyarrow.parquet")


@contextlib.contextmanager
def _opened(info: FileInfo, content: Any = None) -> Iterator[Any]:
    """Open a pyarrow ParquetFile. Defects that pyarrow finds become a DataError; foreign errors of stores pass."""
    pa, parquet = _libraries()
    if content is not None:
        source = pa.BufferReader(content)
    elif is_local(info.uri):
        read_range(info, 0, 0)
        source = pa.OSFile(info.uri)
    else:
        source = pa.PythonFile(ListedFile(info), mode="r")
    try:
        far = content is None and not is_local(info.uri)
        with source, parquet.ParquetFile(source, pre_buffer=far, buffer_size=0 if far else _READ) as file:
            yield file
        read_range(info, 0, 0)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            with border(info.uri):
                raise  # a disk error; pyarrow's errors for damaged pages have no errno
        first = next(iter(str(error).splitlines()), "")
        raise DataError(f"{info.uri} is not a sound Parquet file: {first}", "Copy or make the file again.") from None


def row_group_sizes(info: FileInfo) -> list[int]:
    """Unpacked bytes of each row group, in order."""
    with _opened(info) as file:
        return [file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups)]


def rows_of_groups(info: FileInfo) -> list[int]:
    """Rows of each row group, in order."""
    with _opened(info) as file:
        return [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]


def read_parquet(split: FileSplit, size: int) -> Iterator[pa.Table]:
    """The row groups of the split (all of them for gzip) in order, at least one table.

    Row groups of about `size` bytes or less come whole, larger ones a few rows at a time.
    """
    pa = pyarrow("Parquet")
    content = whole_content(split) if split.options.gzip else None
    with _opened(info_of(split), content) as file:
        groups = range(file.num_row_groups) if content is not None else range(split.start, split.stop)
        abouts = {group: _size_of(file, group) for group in groups}
        rows, total = map(sum, zip(*abouts.values(), strict=True)) if abouts else (0, 0)
        if not rows or total <= size:
            yield file.read_row_groups(list(groups), use_threads=False)
            return
        for group, (rows, total) in abouts.items():
            step = min(GROUP_ROWS, max(1, rows * size // max(total, 1)))
            for batch in file.iter_batches(step, row_groups=[group], use_threads=False):
                yield pa.Table.from_batches([batch])


def _size_of(file: Any, group: int) -> tuple[int, int]:
    """Return (rows, estimated bytes) of a row group. Savings by dictionaries are known for fixed widths only."""
    about = file.metadata.row_group(group)
    row_bytes = sum(_width(field.type) for field in file.schema_arrow)
    return about.num_rows, max(about.total_byte_size, about.num_rows * row_bytes)


def _width(kind: Any) -> int:
    """Return the minimum size of a value in bytes."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:  # a type whose values differ in width
        return _OFFSET


_OFFSET = 4
_READ = 1 << 20
"""Bytes of a column read at once."""
GROUP_ROWS = 1 << 17
"""Rows of a row group; one group is in memory at a time. They affect a file's bytes, so no budget changes them."""


def encode_parquet(kind: Kind, value: Any, options: WriteOptions) -> list[Buffer]:
    """One Parquet file; the same rows give the same bytes on the same pyarrow."""
    return list(encode_tables(as_table(kind, one, options) for one in [value]))


def encode_tables(tables: Iterable[pa.Table]) -> Iterator[Buffer]:
    """Encode tables (at least one, all of one schema) as one Parquet file; yields its bytes as row groups are made.

    Raises DataError for types that Parquet does not have.
    """
    pa, parquet = _libraries()
    sink, groups = Sink(), _row_groups(tables)
    try:
        first = next(groups)
        with parquet.ParquetWriter(pa.PythonFile(sink, mode="w"), first.schema) as writer:
            for group in chain([first], groups):
                writer.write_table(_at_once(group), row_group_size=GROUP_ROWS)
                yield from sink.taken()
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise DataError(f"Parquet cannot hold this partition: {error}", "Convert the columns it names.") from None
    yield from sink.taken()


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """All rows, cut again; a single empty table if there are none."""
    import pyarrow as pa

    held: list[pa.Table] = []
    empty: Any = None
    rows = 0
    for table in tables:
        empty = table if empty is None and not table.num_rows else empty
        held += [table] if table.num_rows else []
        rows += table.num_rows
        while rows > GROUP_ROWS:
            together = pa.concat_tables(held)
            yield together.slice(0, GROUP_ROWS)
            held, rows = [together.slice(GROUP_ROWS)], rows - GROUP_ROWS
    yield pa.concat_tables(held) if held else empty


def _at_once(table: pa.Table) -> pa.Table:
    """Return the table as if it had been made at once: the pages of a file depend on chunks and original
    dictionaries.
    """
    import pyarrow as pa

    columns = [_recoded(column) if _is_coded(column.type) else column for column in table.columns]
    table = pa.table(columns, schema=table.schema) if columns else table
    try:
        return table.combine_chunks()
    except pa.ArrowInvalid:  # the index type is too small for the dictionaries of all chunks
        return table


def _is_coded(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_dictionary(kind) and not kind.ordered


def _recoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary column whose dictionary holds the column's values, in order of occurrence."""
    import pyarrow as pa

    kind = column.type
    try:
        coded = column.cast(kind.value_type).combine_chunks().dictionary_encode()
        indices = coded.indices.cast(kind.index_type)
    # the type has no dictionary, or too many or too long values for one array
    except (pa.ArrowException, AttributeError):
        return column
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, coded.dictionary)])


def as_table(kind: Kind, value: Any, options: WriteOptions) -> pa.Table:
    """The partition as a table of the declared columns. Raises DataError with the position of a record that does not
    fit, UsageError where columns must be declared."""
    import pyarrow as pa

    columns = options.columns
    if kind == "table":
        table = value if isinstance(value, pa.Table) else pa.Table.from_batches([value])
        return _cast(table, columns)
    if kind == "array":
        return _cast(_array_table(value, [name for name, _ in columns]), columns)
    if not columns:
        raise UsageError(
            "Parquet from Python objects needs `columns`", "Declare names and types, such as {word: string, n: int64}."
        )
    return _object_table(tabulate(kind, value, [name for name, _ in columns]), columns)


def _array_table(array: Any, names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    declared = array_names(array, names)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    columns = [native] if array.ndim == 1 else list(native.T)
    return pa.table([pa.array(column) for column in columns], names=list(declared))


def _cast(table: pa.Table, columns: Sequence[tuple[str, str]]) -> pa.Table:
    """The table with the declared columns in the declared order and types; unchanged if none are declared."""
    import pyarrow as pa

    if not columns:
        return table
    names = [name for name, _ in columns]
    check_columns(table.column_names, names)
    return table.select(names).cast(pa.schema([(name, _arrow_type(kind)) for name, kind in columns]))


def _arrow_type(name: str) -> Any:
    """`timestamp` is an instant in microseconds, UTC; a naive datetime is taken as UTC."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
    }
    return types[name]


def _object_table(rows: Rows, columns: Sequence[tuple[str, str]]) -> pa.Table:
    import pyarrow as pa

    values: list[Sequence[Any]] = list(zip(*rows.values, strict=True)) or [()] * len(columns)
    arrays = [_column(name, kind, column) for (name, kind), column in zip(columns, values, strict=True)]
    return pa.table(arrays, names=[name for name, _ in columns])


def _column(name: str, kind: str, values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    types = set(map(type, values))
    if any(found.__module__ in ("numpy", "pyarrow.lib") for found in types):
        values = [plain(value) for value in values]
        types = set(map(type, values))
    wrong = {found for found in types if not _fits(found, kind)}
    if wrong:
        raise _misfit(name, kind, values, next(i for i, value in enumerate(values) if type(value) in wrong))
    try:
        return pa.array(values, _arrow_type(kind))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        at = first_failing(values, lambda value: pa.array([value], _arrow_type(kind)))
        raise _misfit(name, kind, values, at) from None


def _fits(found: type, kind: str) -> bool:
    if found is type(None):
        return True
    if issubclass(found, bool):
        return kind == "boolean"
    if issubclass(found, datetime.datetime):
        return kind == "timestamp"
    return issubclass(found, _PYTHON_TYPES[kind])


def _misfit(name: str, kind: str, values: Sequence[Any], position: int) -> DataError:
    value = repr(values[position])
    shown = value if len(value) <= 60 else value[:57] + "..."
    return DataError(
        f"record {position}: column {name} is {kind}, the value is {shown} ({type(values[position]).__name__})",
        "convert it in the stage's function, or change the column's type",
    )
