"""Data of this process as input of a run: lists, NumPy arrays, and tables of Arrow, pandas or Polars.

The name of a file is the digest of its content.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.primitives.checksums import sha256
from treadle.primitives.errors import UsageError
from treadle.primitives.formats.output_folder import ONE_REQUEST
from treadle.primitives.lazy_import import pyarrow
from treadle.primitives.run_paths import INPUTS

if TYPE_CHECKING:
    from treadle.dsl.model import Spec
    from treadle.primitives.stores.atomic_files import Buffer
    from treadle.primitives.stores.store import Store

MARK = ".used"
"""Suffix of an empty object beside a file, written again for each run with the file as input. Its age is the file's."""
_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))


def stored(store: Store, spec: Spec, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with arrays and tables replaced by the files that hold them. Blocking.

    Equal data gives the same file, so that a repeated run has the same inputs. Raises UsageError for a value of another
    type, StoreError.
    """
    found = dict(inputs)
    for name, value in inputs.items():
        if name in spec.inputs and spec.inputs[name].type == "dataset" and not isinstance(value, _PLAIN):
            found[name] = _file(store, name, value)
        elif isinstance(value, tuple):
            found[name] = list(value)
    return found


def _file(store: Store, input: str, value: Any) -> dict[str, Any]:
    """The file of an array or table as a source that a stage reads."""
    format, buffers = _encoded(input, value)
    name = f"{INPUTS}/{sha256(buffers).hex()[:32]}.{format}"
    store.put(name + MARK, b"")  # before the file, so that `gc` keeps an old file that this run finds
    if store.head(name) is None:
        size = sum(memoryview(one).nbytes for one in buffers)
        store.create(name, buffers if size <= ONE_REQUEST else iter(buffers))
    return {"uri": f"{store.url.rstrip('/')}/{name}", "format": format}


def _encoded(input: str, value: Any) -> tuple[str, list[Buffer]]:
    """Format, and content of the file. The memory of an array is not copied."""
    if hasattr(value, "__arrow_c_stream__"):
        return "parquet", _parquet(value)
    if hasattr(value, "__array_interface__") and value.ndim and not value.dtype.hasobject:
        return "npy", _npy(value)
    raise UsageError(
        f"the input {input!r} is given a {type(value).__name__}",
        "Give a list, an array of NumPy without objects, a table of Arrow, pandas or Polars, or the path of files.",
    )


def _npy(array: Any) -> list[Buffer]:
    import numpy as np

    array, file = np.ascontiguousarray(array), io.BytesIO()
    if array.dtype.names is not None:  # their header has several versions
        np.save(file, array, allow_pickle=False)
        return [file.getbuffer()]
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    return [file.getvalue(), array.reshape(-1).view(np.uint8).data]


def _parquet(frame: Any) -> list[Buffer]:
    """A data frame as an Arrow table. An index of pandas other than the default one becomes a column."""
    table = pyarrow("a table as input").table(frame).replace_schema_metadata(None)
    buffer = io.BytesIO()
    pyarrow("a table as input", "pyarrow.parquet").write_table(table, buffer)
    return [buffer.getbuffer()]
