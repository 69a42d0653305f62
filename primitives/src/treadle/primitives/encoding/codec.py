"""The bytes of one part: a small header, then payload buffers aligned to 64 bytes, which decode as views.

The form in a frame of `frames` is one of

    pickle       meta is a pickle of protocol 5 (PEP 574), the buffers are its out-of-band buffers
    array        meta is the dtype and shape as a Python literal, as in the .npy format
    odd array    a pickle of an array whose dtype the .npy format cannot express
    table        the single buffer is an Arrow IPC stream
    pieces       the buffers are parts of one kind, to be joined in order: a large value, which its reader can decode
                 one piece at a time

A part holds only values of its kind and must be authentic (checksum and digest checked) before it is decoded.
"""

from __future__ import annotations

import ast
import functools
import itertools
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import CorruptError, DataError, InternalError
from ..lazy_import import pyarrow
from ..stores.atomic_files import Buffer
from .frames import SMALL, frame, frame_head, small_frame, unframe
from .references import Kind
from .tabular import type_name

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_PICKLE, _ARRAY, _TABLE, _ODD_ARRAY, _PIECES = 1, 2, 3, 4, 5
_PIECE = 4 << 20
LARGE = 2 * _PIECE
"""Bytes of a part from which a reader with little memory could not decode it as a whole."""
_KINDS: dict[int, Kind] = {_PICKLE: "objects", _ARRAY: "array", _TABLE: "table", _ODD_ARRAY: "array"}


def encode(kind: Kind, value: Any) -> list[Buffer]:
    """Return the part as buffers whose lengths sum to a multiple of 64; large ones are views of `value`, not copies.

    Raises DataError for records that cannot be pickled, arrays of Python objects, and values not of this kind.
    """
    if kind == "array":
        return _encode_array(value)
    if kind == "table":
        return _encode_table(value)
    return _encode_objects(value)


def in_pieces(records: list[Any], whole: list[Buffer]) -> list[Buffer]:
    """Return an encoded list of more than 8 MiB in pieces, which a reader may decode one at a time; otherwise `whole`.

    It stays whole if its records share so much that pieces would need a quarter more.
    """
    size = sum(map(len, whole))
    if size <= LARGE or len(records) < 2:
        return whole
    count = max(1, len(records) * _PIECE // size)
    parts = [_encode_objects(records[start : start + count]) for start in range(0, len(records), count)]
    lengths = [sum(map(len, part)) for part in parts]
    if sum(lengths) > size * 5 // 4:
        return whole
    return [pieces_head(lengths), *itertools.chain.from_iterable(parts)]


def decode(data: Buffer) -> Any:
    """Return the value; arrays and tables in it are read-only views of `data`, which they keep alive.

    Raises CorruptError when the framing is wrong, DataError when a record cannot be rebuilt because its class is
    missing.
    """
    form, meta, buffers = unframe(data)
    if form == _PICKLE:
        return _unpickle(meta, buffers)
    if form == _ODD_ARRAY:
        return _read_only(_unpickle(meta, buffers))
    if form == _ARRAY and len(buffers) == 1:
        return _decode_array(bytes(meta), buffers[0])
    if form == _TABLE and len(buffers) == 1:
        return _decode_table(buffers[0])
    if form == _PIECES and buffers:
        return concat(_kind_of(buffers[0]), [decode(buffer) for buffer in buffers])
    raise CorruptError(f"a part has the unknown form {form}", "Another version of treadle wrote it: use one version.")


def pieces(data: Buffer) -> Sequence[Buffer]:
    """Return the buffers to decode one at a time: the pieces in which the part was put, or the part itself."""
    form, _, buffers = unframe(data)
    return buffers if form == _PIECES else [data]


def pieces_head(lengths: Sequence[int]) -> bytes:
    """Return the bytes that precede encoded pieces of these lengths and make them one part; empty for a
    single piece.
    """
    return frame_head(_PIECES, lengths) if len(lengths) > 1 else b""


def _kind_of(data: Buffer) -> Kind:
    return _KINDS.get(unframe(data)[0], "objects")


def rows(kind: Kind, value: Any) -> int:
    """Return the number of records in the partition."""
    return int(value.num_rows) if kind == "table" else len(value)


def concat(kind: Kind, values: Sequence[Any]) -> Any:
    """Join the partitions in order; a single partition is returned unchanged. Arrays are read-only.

    Empty parts are left out, so their dtype or schema may differ. Raises DataError when the other parts disagree.
    """
    if not values:
        raise InternalError("concat of nothing")
    values = [value for value in values if rows(kind, value)] or list(values[:1])
    if len(values) == 1:
        return values[0]
    if kind == "objects":
        return [record for value in values for record in value]
    return _concat_arrays(values) if kind == "array" else _concat_tables(values)


# -- objects ---------------------------------------------------------------------------------------------------------


def _encode_objects(records: Any) -> list[Buffer]:
    if type(records) is not list:
        raise DataError(f"a partition of objects is a list, not {type(records).__name__}", "Return a list of records.")
    return _encode_pickle(_PICKLE, records)


def _encode_pickle(form: int, value: Any) -> list[Buffer]:
    outside: list[pickle.PickleBuffer] = []
    meta = _dumps(value, outside)
    if not outside and len(meta) < SMALL:
        return [small_frame(form, meta)]
    return frame(form, meta, [[buffer.raw()] for buffer in outside])


def _dumps(value: Any, outside: list[pickle.PickleBuffer]) -> bytes:
    """Raises DataError that names the first record that cannot be pickled."""
    try:
        return pickle.dumps(value, protocol=5, buffer_callback=lambda buffer: keep_outside(outside, buffer))
    except MemoryError:
        raise
    except Exception as error:
        raise _unpicklable(value, error) from error


def keep_outside(outside: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    """Return whether pickle should keep the buffer itself: only if it is not contiguous."""
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
            what = f"record {position} is a {type_name(record)} and cannot be pickled"
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


# -- arrays ----------------------------------------------------------------------------------------------------------


def _encode_array(value: Any) -> list[Buffer]:
    import numpy as np

    _check_array(value)
    array = np.ascontiguousarray(value.view(np.ndarray))
    descr = _dtype_descr(array.dtype)
    if descr is None:
        return _encode_pickle(_ODD_ARRAY, array)
    meta = repr((descr, array.shape)).encode()
    return frame(_ARRAY, meta, [[array.reshape(-1).view(np.uint8).data] if array.nbytes else []])


def _check_array(value: Any) -> None:
    import numpy as np

    if not isinstance(value, np.ndarray) or value.ndim == 0:
        raise DataError(
            f"a partition of kind array is a NumPy array with rows, not {type_name(value)}",
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
    """Return the dtype as a Python literal; None for a dtype that a literal cannot express, such as an extension."""
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
    return _read_only(np.concatenate(values, dtype=first.dtype))  # without `dtype` NumPy uses this machine's byte order


def _row_type(array: Any) -> str:
    return f"{array.dtype}{list(array.shape[1:])}"


# -- tables ----------------------------------------------------------------------------------------------------------


class Sink:
    """A file that keeps the written buffers until they are taken, without copying Arrow's buffers."""

    closed = False

    def __init__(self) -> None:
        self._written: list[Buffer] = []

    def write(self, data: Any) -> int:
        view = data if isinstance(data, bytes) else memoryview(data)
        self._written.append(view)
        return len(view)

    def taken(self) -> list[Buffer]:
        written, self._written = self._written, []
        return written

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _encode_table(value: Any) -> list[Buffer]:
    arrow = pyarrow("a table")
    if isinstance(value, arrow.RecordBatch):
        value = arrow.Table.from_batches([value])
    if not isinstance(value, arrow.Table):
        raise DataError(
            f"a partition of kind table is an Arrow table, not {type_name(value)}", "Return a pyarrow.Table."
        )
    if not value.num_columns and value.num_rows:
        raise DataError("a table without columns has rows", "Keep at least one column, or return a list of records.")
    sink = Sink()
    with arrow.ipc.new_stream(arrow.PythonFile(sink, "w"), value.schema) as writer:
        writer.write_table(value)
    return frame(_TABLE, b"", [sink.taken()])


def _decode_table(data: memoryview) -> pa.Table:
    arrow = pyarrow("a table")
    try:
        return arrow.ipc.open_stream(arrow.py_buffer(data)).read_all()
    except MemoryError:
        raise
    except arrow.ArrowException as error:
        raise DataError(
            f"a table cannot be rebuilt: {error}", "The versions of pyarrow may differ: use one."
        ) from error


def _concat_tables(values: Sequence[Any]) -> Any:
    arrow = pyarrow("a table")
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
