"""The bytes of one part: a small header, then payload buffers aligned to 64 bytes, which decode as views.

Layout, integers little-endian:

    magic "TRD" and version | form (1 byte) | 4 bytes zero | number of buffers (8) | length of meta (8) | total (8)
    length of each buffer (8 each) | meta | then each buffer, at the next multiple of 64

Forms: `pickle` (meta is a pickle of protocol 5, PEP 574, the buffers are its out-of-band buffers), `array` (meta is
the dtype and shape as a Python literal, as in the .npy format), `odd array` (a pickle of one whose dtype that format
cannot say), `table` (the one buffer is an Arrow IPC stream).
A part holds only what its kind says and must be authentic (checksum and digest checked) before it is decoded.
"""

from __future__ import annotations

import ast
import functools
import pickle
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import CorruptError, DataError, InternalError, UsageError
from .frozen import is_frozen as is_frozen
from .references import Kind
from .whole_files import Buffer

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

ALIGNMENT = 64
_MAGIC = b"TRD\x01"
_HEADER = struct.Struct("<4sB3xQQQ")
_PICKLE, _ARRAY, _TABLE, _ODD_ARRAY = 1, 2, 3, 4
_SMALL = 1 << 12
_SAMPLE = 64


def encode(kind: Kind, value: Any) -> list[Buffer]:
    """The part as buffers whose lengths sum to a multiple of 64; large ones are views of `value`, not copies.

    Raises DataError for records that cannot be pickled, arrays of Python objects and what is not of this kind.
    """
    if kind == "array":
        return _encode_array(value)
    if kind == "table":
        return _encode_table(value)
    return _encode_objects(value)


def decode(data: Buffer) -> Any:
    """The value; arrays and tables in it are read-only views of `data`, which they keep alive.

    Raises CorruptError when the framing is wrong, DataError when a record cannot be rebuilt (its class is not there).
    """
    form, meta, buffers = _unframe(memoryview(data).cast("B").toreadonly())
    if form == _PICKLE:
        return _unpickle(meta, buffers)
    if form == _ODD_ARRAY:
        return _read_only(_unpickle(meta, buffers))
    if form == _ARRAY and len(buffers) == 1:
        return _decode_array(bytes(meta), buffers[0])
    if form == _TABLE and len(buffers) == 1:
        return _decode_table(buffers[0])
    raise CorruptError(f"a part has the unknown form {form}", "Another version of treadle wrote it: use one version.")


def rows(kind: Kind, value: Any) -> int:
    """How many records the partition has."""
    return int(value.num_rows) if kind == "table" else len(value)


def nbytes(kind: Kind, value: Any) -> int:
    """About how many bytes `encode` makes: exact for arrays and tables but for framing, sampled for objects."""
    if kind != "objects":
        return int(value.nbytes)
    if not value:
        return 0
    sample = value[:: -(-len(value) // _SAMPLE)]
    return len(_dumps(sample, None)) * len(value) // len(sample)


def concat(kind: Kind, values: Sequence[Any]) -> Any:
    """The partitions as one, in order; a single one is returned itself. Arrays are read-only.

    Empty parts are left out, so that their dtype or schema need not agree. Raises DataError when the others' do not.
    """
    if not values:
        raise InternalError("concat of nothing")
    values = [value for value in values if rows(kind, value)] or list(values[:1])
    if len(values) == 1:
        return values[0]
    if kind == "objects":
        return [record for value in values for record in value]
    return _concat_arrays(values) if kind == "array" else _concat_tables(values)


# -- framing ---------------------------------------------------------------------------------------------------------


def _frame(form: int, meta: bytes, buffers: Sequence[Sequence[Buffer]]) -> list[Buffer]:
    """The part; each of `buffers` is given as pieces to be joined."""
    lengths = [sum(map(len, pieces)) for pieces in buffers]
    head = _HEADER.size + 8 * len(lengths) + len(meta)
    total = _aligned(head) + sum(map(_aligned, lengths))
    header = _HEADER.pack(_MAGIC, form, len(lengths), len(meta), total)
    parts: list[Buffer] = [header, struct.pack(f"<{len(lengths)}Q", *lengths), meta, bytes(-head % ALIGNMENT)]
    for pieces, length in zip(buffers, lengths, strict=True):
        parts.extend(pieces)
        parts.append(bytes(-length % ALIGNMENT))
    return _coalesced(parts)


def _small_frame(form: int, meta: bytes) -> bytes:
    """What `_frame` makes of a short meta alone: most parts of a run of many small partitions."""
    head = _HEADER.size + len(meta)
    padding = -head % ALIGNMENT
    return _HEADER.pack(_MAGIC, form, 0, len(meta), head + padding) + meta + bytes(padding)


def _coalesced(parts: Sequence[Buffer]) -> list[Buffer]:
    """Neighbouring small buffers joined: a list of many small arrays is not a vector of many small writes."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < _SMALL:
            small.append(part)
            continue
        joined += [b"".join(small), part]
        small = []
    joined.append(b"".join(small))
    return [part for part in joined if len(part)]


def _unframe(view: memoryview) -> tuple[int, memoryview, list[memoryview]]:
    if len(view) < _HEADER.size:
        raise _torn()
    magic, form, count, meta_length, total = _HEADER.unpack_from(view)
    head = _HEADER.size + 8 * count + meta_length
    if magic != _MAGIC or total != len(view) or head > total:
        raise _torn()
    lengths = struct.unpack_from(f"<{count}Q", view, _HEADER.size)
    if _aligned(head) + sum(map(_aligned, lengths)) != total:
        raise _torn()
    buffers, start = [], _aligned(head)
    for length in lengths:
        buffers.append(view[start : start + length])
        start += _aligned(length)
    return form, view[head - meta_length : head], buffers


def _torn() -> CorruptError:
    return CorruptError("a part is cut off, or is not one of treadle's", "Its producer must run again.")


def _aligned(length: int) -> int:
    return length + -length % ALIGNMENT


# -- objects ---------------------------------------------------------------------------------------------------------


def _encode_objects(records: Any) -> list[Buffer]:
    if type(records) is not list:
        raise DataError(f"a partition of objects is a list, not {type(records).__name__}", "Return a list of records.")
    return _encode_pickle(_PICKLE, records)


def _encode_pickle(form: int, value: Any) -> list[Buffer]:
    outside: list[pickle.PickleBuffer] = []
    meta = _dumps(value, outside)
    if not outside and len(meta) < _SMALL:
        return [_small_frame(form, meta)]
    return _frame(form, meta, [[buffer.raw()] for buffer in outside])


def _dumps(value: Any, outside: list[pickle.PickleBuffer] | None) -> bytes:
    """Raises DataError that names the first record that cannot be pickled."""
    keep = None if outside is None else lambda buffer: _keep_outside(outside, buffer)
    try:
        return pickle.dumps(value, protocol=5, buffer_callback=keep)
    except MemoryError:
        raise
    except Exception as error:
        raise _unpicklable(value, error) from error


def _keep_outside(outside: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    """Whether pickle should keep the buffer itself: only when it is not contiguous."""
    try:
        buffer.raw()
    except BufferError:
        return True
    outside.append(buffer)
    return False


def _unpicklable(value: Any, error: Exception) -> DataError:
    hint = (
        "Return plain data, or instances of classes defined at the top level of a module; "
        "not lambdas, local classes, open files, locks or connections."
    )
    for position, record in enumerate(value if isinstance(value, list) else ()):
        try:
            pickle.dumps(record, protocol=5)
        except Exception as cause:  # noqa: BLE001 - any reducer may raise anything
            what = f"record {position} is a {_type_name(record)} and cannot be pickled"
            return DataError(f"{what}: {type(cause).__name__}: {cause}", hint)
    return DataError(f"the records cannot be pickled: {type(error).__name__}: {error}", hint)


def _unpickle(meta: memoryview, buffers: list[memoryview]) -> Any:
    try:
        return pickle.loads(meta, buffers=buffers)
    except MemoryError:
        raise
    except Exception as error:
        raise DataError(
            f"a record cannot be rebuilt from its bytes: {type(error).__name__}: {error}",
            "Its class must be importable where it is read, under the same name, and must support pickle.",
        ) from error


def _type_name(record: Any) -> str:
    cls = type(record)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# -- arrays ----------------------------------------------------------------------------------------------------------


def _encode_array(value: Any) -> list[Buffer]:
    import numpy as np

    _check_array(value)
    array = np.ascontiguousarray(value.view(np.ndarray))
    descr = _dtype_descr(array.dtype)
    if descr is None:
        return _encode_pickle(_ODD_ARRAY, array)
    meta = repr((descr, array.shape)).encode()
    return _frame(_ARRAY, meta, [[array.reshape(-1).view(np.uint8).data] if array.nbytes else []])


def _check_array(value: Any) -> None:
    import numpy as np

    if not isinstance(value, np.ndarray) or value.ndim == 0:
        raise DataError(
            f"a partition of kind array is a NumPy array with rows, not {_type_name(value)}",
            "Return one with ndim >= 1.",
        )
    if isinstance(value, np.ma.MaskedArray):
        raise DataError("a masked array cannot be a partition", "Fill it (.filled(...)), or return a table with nulls.")
    if value.dtype.hasobject:
        raise DataError(
            f"an array of dtype {value.dtype} holds Python objects, not numbers",
            "Give it a plain dtype (.astype(...)), or return a list of records.",
        )


def _dtype_descr(dtype: np.dtype[Any]) -> Any:
    """The dtype as a Python literal, or None for one (of an extension, say) that does not survive this."""
    fields: Any = dtype.fields or {}
    if dtype.metadata or any(fields[name][0].metadata for name in fields):
        return None  # equal dtypes may differ in metadata
    return _plain_descr(dtype)


@functools.lru_cache(256)
def _plain_descr(dtype: np.dtype[Any]) -> Any:
    import numpy as np

    try:
        descr = np.lib.format.dtype_to_descr(dtype)
        same = np.lib.format.descr_to_dtype(ast.literal_eval(repr(descr))) == dtype and dtype.itemsize > 0
    except (TypeError, ValueError, SyntaxError):
        return None
    return descr if same else None


def _decode_array(meta: bytes, data: memoryview) -> Any:
    import numpy as np

    dtype, shape = _dtype_and_shape(meta)
    array = np.frombuffer(data, dtype).reshape(shape) if len(data) else np.empty(shape, dtype)
    return _read_only(array)


@functools.lru_cache(1024)
def _dtype_and_shape(meta: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    import numpy as np

    descr, shape = ast.literal_eval(meta.decode())
    return np.lib.format.descr_to_dtype(descr), shape


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _concat_arrays(values: Sequence[Any]) -> Any:
    import numpy as np

    first = values[0]
    for value in values[1:]:
        if value.dtype != first.dtype or value.shape[1:] != first.shape[1:]:
            raise DataError(
                f"partitions differ: rows of {_row_type(first)} and of {_row_type(value)}",
                "Return arrays of one dtype and row shape from every partition.",
            )
    return _read_only(np.concatenate(values))


def _row_type(array: Any) -> str:
    return f"{array.dtype}{list(array.shape[1:])}"


# -- tables ----------------------------------------------------------------------------------------------------------


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise UsageError(
            "a table needs pyarrow, which is not installed", "Install treadle-primitives[arrow]."
        ) from error
    return pyarrow


class _Pieces:
    """A file that keeps what is written to it, without copying Arrow's buffers."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []

    def write(self, data: Any) -> int:
        view = data if isinstance(data, bytes) else memoryview(data)
        self.pieces.append(view)
        return len(view)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _encode_table(value: Any) -> list[Buffer]:
    arrow = _arrow()
    if isinstance(value, arrow.RecordBatch):
        value = arrow.Table.from_batches([value])
    if not isinstance(value, arrow.Table):
        raise DataError(
            f"a partition of kind table is an Arrow table, not {_type_name(value)}", "Return a pyarrow.Table."
        )
    if not value.num_columns and value.num_rows:
        raise DataError("a table without columns has rows", "Keep at least one column, or return a list of records.")
    sink = _Pieces()
    with arrow.ipc.new_stream(arrow.PythonFile(sink, "w"), value.schema) as writer:
        writer.write_table(value)
    return _frame(_TABLE, b"", [sink.pieces])


def _decode_table(data: memoryview) -> pa.Table:
    arrow = _arrow()
    try:
        return arrow.ipc.open_stream(arrow.py_buffer(data)).read_all()
    except arrow.ArrowException as error:
        raise DataError(
            f"a table cannot be rebuilt: {error}", "The versions of pyarrow may differ: use one."
        ) from error


def _concat_tables(values: Sequence[Any]) -> Any:
    arrow = _arrow()
    first = values[0].schema
    for value in values[1:]:
        if not value.schema.equals(first):
            raise DataError(
                f"partitions differ: a table of ({_columns(first)}) and one of ({_columns(value.schema)})",
                "Return tables of one schema from every partition.",
            )
    return arrow.concat_tables(values)


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
