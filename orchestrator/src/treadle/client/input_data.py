"""Data of this process as input of a run: lists, NumPy arrays, and tables of Arrow, pandas or Polars.

The name of a file is the digest of its content.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.primitives.errors import UsageError
from treadle.primitives.lazy_import import pyarrow
from treadle.primitives.run_paths import INPUTS

if TYPE_CHECKING:
    from treadle.dsl.model import Spec
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
    format, data = _encoded(input, value)
    name = f"{INPUTS}/{hashlib.sha256(data).hexdigest()[:32]}.{format}"
    store.put(name + MARK, b"")  # before the file, so that `gc` keeps an old file that this run finds
    store.create(name, data)
    return {"uri": f"{store.url.rstrip('/')}/{name}", "format": format}


def _encoded(input: str, value: Any) -> tuple[str, bytes]:
    if hasattr(value, "__arrow_c_stream__"):
        return "parquet", _parquet(value)
    if hasattr(value, "__array_interface__") and value.ndim:
        return "npy", _npy(value)
    raise UsageError(
        f"the input {input!r} is given a {type(value).__name__}",
        "Give a list, an array of NumPy, a table of Arrow, pandas or Polars, or the path of files.",
    )


def _npy(array: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _parquet(frame: Any) -> bytes:
    """A data frame as an Arrow table. An index of pandas other than the default one becomes a column."""
    table = pyarrow("a table as input").table(frame).replace_schema_metadata(None)
    buffer = io.BytesIO()
    pyarrow("a table as input", "pyarrow.parquet").write_table(table, buffer)
    return buffer.getvalue()
