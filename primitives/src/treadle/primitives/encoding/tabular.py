"""Values that are a partition by themselves: NumPy arrays, Arrow tables, and frames of other libraries.

A frame is any object of columns with the Arrow PyCapsule interface: pandas (2.2 or newer), Polars, DuckDB relations.
None of these libraries is imported here.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from ..lazy_import import pyarrow
from .references import Kind

if TYPE_CHECKING:
    import pyarrow as pa

_is_unnamed_index = re.compile(r"__index_level_\d+__").fullmatch
"""Matches the column name that pandas gives to an index without a name."""


def as_partition(value: Any) -> tuple[Kind, Any] | None:
    """Return (kind, the array or Arrow table) of a value that is a whole partition; None for any other value.

    Raises UsageError for a frame when pyarrow is missing, and the error of the frame's library for columns that Arrow
    cannot hold.
    """
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return ("array", value) if value.ndim else None
    if arrow is not None and isinstance(value, arrow.Table):
        return "table", value
    if arrow is not None and isinstance(value, arrow.RecordBatch):
        return "table", arrow.Table.from_batches([value])
    return ("table", table_of_frame(value)) if is_frame(value) else None


def is_frame(value: Any) -> bool:
    """Return whether the value has columns and exports them to Arrow; Arrow's own tables do, too."""
    return is_frame_type(type(value))


def is_frame_type(kind: type) -> bool:
    """Return whether values of this type are frames, as in `is_frame`."""
    return hasattr(kind, "__arrow_c_stream__") and hasattr(kind, "columns")


def items_of(value: Any) -> Any:
    """Return the iterable of a flat result: the rows of a table or frame as dicts, any other value itself."""
    if not is_frame(value):
        return value
    found = as_partition(value)
    return value if found is None else found[1].to_pylist()


def table_of_frame(frame: Any) -> pa.Table:
    """Return the columns of a frame, and the named levels of a pandas index. Metadata of the schema is left out: it
    names the library that made the frame.
    """
    table = pyarrow("a frame").RecordBatchReader.from_stream(frame).read_all()
    unnamed = [name for name in table.column_names if _is_unnamed_index(name)]
    return table.drop_columns(unnamed).replace_schema_metadata(None)


def type_name(value: object) -> str:
    """Return `module.Name` of the value's type; builtins without the module."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def conversion(value: object) -> str:
    """Return a line of code that converts a value without a text form to plain records or values."""
    kind, package = type(value), type(value).__module__.partition(".")[0]
    if is_frame(value) or kind.__name__ == "LazyFrame":
        return _of_a_frame(package, kind.__name__)
    if package in ("pandas", "polars", "pyarrow") and (hasattr(kind, "to_list") or hasattr(kind, "to_pylist")):
        return f"It is a column: use `value.{'to_pylist' if package == 'pyarrow' else 'to_list'}()`."
    if kind.__name__ in ("datetime64", "timedelta64"):
        return f'Python has no finer unit than microseconds: use `value.astype("{kind.__name__}[us]")`.'
    if kind.__name__ in ("NAType", "NaTType"):
        return "Use None where there is no value, as in `frame.astype(object).where(frame.notna(), None)`."
    if package == "numpy":
        return "Use `value.tolist()`."
    if hasattr(kind, "isoformat"):
        return "Use `value.isoformat()`."
    if package == "builtins":
        return "Convert it to str first, or write jsonl or parquet."
    return "Return its fields, for example `vars(value)`, or a text of your own."


def _of_a_frame(package: str, name: str) -> str:
    if name == "LazyFrame":
        return "Return `frame.collect()` from a map with `per: partition`, whose rows are then records."
    lines = {"pandas": 'frame.to_dict("records")', "polars": "frame.to_dicts()", "pyarrow": "table.to_pylist()"}
    line = lines.get(package, "pyarrow.table(frame).to_pylist()")
    return f"Return it from a map with `per: partition`, whose rows are then records; or `{line}` with `flat: true`."
