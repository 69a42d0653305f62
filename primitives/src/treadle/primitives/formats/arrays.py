"""The formats npy and fixed: arrays as files.

npy is NumPy's own format (numpy.lib.format, versions 1.0 to 3.0); fixed is rows of uint8 without a header.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..encoding.references import Kind
from ..errors import DataError, UsageError
from ..stores.input_files import FileInfo, is_local, read_range
from .options import FileSplit
from .split_content import Content, info_of, whole_content

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 20


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


class Layout(Struct, frozen=True):
    """The content of an npy file's header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    """First byte of the data."""

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])


def plan_npy(info: FileInfo) -> Layout:
    """The header of an npy file, checked against the file's size."""
    return parse_npy(read_range(info, 0, min(info.size, _MAX_HEADER)), info.size, info.uri)


def parse_npy(head: Content, size: int, uri: str) -> Layout:
    """The layout of an npy file of `size` bytes that begins with `head`; raises DataError."""
    layout = _header(head, uri)
    if layout.dtype.hasobject:
        raise DataError(f"{uri} holds Python objects, which are never unpickled", "Save it with a plain dtype.")
    if not layout.shape:
        raise DataError(f"{uri} holds a single value, not rows", "Save an array of at least one dimension.")
    expected = layout.offset + layout.dtype.itemsize * math.prod(layout.shape)
    if size != expected:
        raise DataError(
            f"{uri} has {size} bytes; its header promises {expected} (dtype {layout.dtype}, shape {layout.shape})",
            "Copy or make the file again; only one array can be in it.",
        )
    return layout


def _header(head: Content, uri: str) -> Layout:
    from numpy.lib.format import descr_to_dtype

    wide = 2 if bytes(head[6:7]) == b"\x01" else 4
    start = 8 + wide
    offset = start + int.from_bytes(head[8:start], "little")
    if bytes(head[:6]) != _MAGIC or head[6] not in (1, 2, 3) or offset > len(head):
        raise DataError(f"{uri} is not an npy file, or is cut off in its header", "Write it with numpy.save.")
    try:
        fields = ast.literal_eval(str(head[start:offset], "utf-8" if head[6] == 3 else "latin-1").strip())
        shape = tuple(int(length) for length in fields["shape"])
        if min(shape, default=0) < 0:
            raise ValueError(f"the shape {shape} is negative")
        return Layout(descr_to_dtype(fields["descr"]), shape, bool(fields["fortran_order"]), offset)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise DataError(f"the npy header of {uri} cannot be read: {error}", "Write it with numpy.save.") from None


def read_npy(split: FileSplit, size: int) -> Iterator[NDArray[Any]]:
    """The rows of the split, read-only, in the file's dtype and byte order; of a remote file about `size` bytes at
    once."""
    import numpy as np

    content = whole_content(split) if split.options.gzip else None
    layout = plan_npy(info_of(split)) if content is None else parse_npy(content, len(content), split.uri)
    if layout.fortran or layout.row_bytes == 0 or content is not None:
        data = whole_content(split) if content is None else content
        yield np.ndarray(layout.shape, layout.dtype, data, layout.offset, order="F" if layout.fortran else "C")
        return
    for data in _rows(split, layout.row_bytes, size):
        yield np.frombuffer(data, layout.dtype).reshape(-1, *layout.shape[1:])


def read_fixed(split: FileSplit, size: int) -> Iterator[NDArray[np.uint8]]:
    """uint8 of shape (rows, recordBytes), read-only; of a remote file about `size` bytes at once."""
    import numpy as np

    width = split.options.record_bytes
    for data in [whole_content(split)] if split.options.gzip else _rows(split, width, size):
        fixed_rows(split.uri, len(data), width)
        yield np.frombuffer(data, np.uint8).reshape(-1, width)


def _rows(split: FileSplit, row_bytes: int, size: int) -> Iterator[Content]:
    """The bytes of the split's rows; for a local file a view of its mapping."""
    if is_local(split.uri):
        yield memoryview(whole_content(split))[split.start : split.stop]
        return
    for start, stop in row_ranges(split.start, (split.stop - split.start) // row_bytes, row_bytes, size):
        yield read_range(info_of(split), start, stop)


def encode_npy(kind: Kind, value: Any, rows: int | None = None) -> list[Content]:
    """Return [head, data]: the array in C order, for any order in memory, so that equal arrays give equal bytes.

    `rows`: the number of rows in the file; the value is a piece of it.
    """
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise DataError("npy cannot hold a masked array", "Fill it (`.filled(...)`), or return a table with nulls.")
    if kind != "array" or value.ndim == 0 or value.dtype.hasobject or _is_turned(value.dtype):
        what = kind if kind != "array" else f"an array of dtype {value.dtype} and shape {value.shape}"
        raise DataError(f"npy cannot hold {what}", "Return a NumPy array with rows and a plain dtype.")
    head = BytesIO()
    array = _without_gaps(value) if value.dtype.names else np.ascontiguousarray(value)
    fields = np.lib.format.header_data_from_array_1_0(array) | {"fortran_order": False}
    if rows is not None:
        fields["shape"] = (rows, *array.shape[1:])
    if len(repr(fields)) < 60_000:
        np.lib.format.write_array_header_1_0(head, fields)
    else:
        np.lib.format.write_array_header_2_0(head, fields)
    return [head.getvalue(), _raw(array)]


def _is_turned(dtype: np.dtype[Any]) -> bool:
    """Return whether fields overlap or do not follow each other: such a dtype has no text form."""
    import numpy as np

    try:
        np.lib.format.dtype_to_descr(dtype)
    except ValueError:
        return True
    return False


def _without_gaps(array: NDArray[Any]) -> NDArray[Any]:
    """Fill the gaps between fields with zeros; arrays hold arbitrary memory there."""
    import numpy as np

    settled = np.zeros(array.shape, array.dtype)
    _copy_fields(array, settled)
    return settled


def _copy_fields(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Copy field by field: NumPy 2.5 copies a whole row between equal dtypes, bytes between its fields included."""
    if not source.dtype.names:
        target[...] = source
    for name in source.dtype.names or ():
        _copy_fields(source[name], target[name])


def _raw(array: NDArray[Any]) -> Content:
    return array.reshape(-1).view("u1").data if array.nbytes else b""


def encode_fixed(kind: Kind, value: Any) -> list[Content]:
    """Rows of a uint8 array of two dimensions, or bytes records of one length, one after the other."""
    if kind == "array":
        import numpy as np

        if value.dtype != np.uint8 or value.ndim != 2 or isinstance(value, np.ma.MaskedArray):
            raise DataError(
                f"format fixed takes uint8 of shape (rows, recordBytes), not {value.dtype} of shape {value.shape}",
                "Return such an array, or use npy.",
            )
        return [_raw(np.ascontiguousarray(value))]
    if kind == "table":
        raise DataError("format fixed cannot hold a table", "Return a uint8 array or bytes records, or use parquet.")
    return [b"".join(_checked(value))]


def _checked(values: Any) -> list[bytes]:
    records: list[bytes] = list(values)
    for position, record in enumerate(records):
        if not isinstance(record, bytes | bytearray) or len(record) != len(records[0]) or not record:
            what = f"{len(record)} bytes" if isinstance(record, bytes | bytearray) else f"a {type(record).__name__}"
            raise DataError(
                f"record {position} is {what}; format fixed takes bytes, all of one length",
                "Mend the stage's function.",
            )
    return records
