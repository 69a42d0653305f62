"""Partitions of every kind as plain Python records, and as rows of named columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from ..encoding.references import Kind
from ..errors import DataError


class Rows(Struct, frozen=True):
    """Rows of equal length; `names` is empty only without a record to take them from."""

    names: tuple[str, ...]
    values: Iterable[Sequence[Any]]


def plain(value: Any) -> Any:
    """Convert NumPy and Arrow scalars to the Python value they hold, if possible; return other values unchanged."""
    module = type(value).__module__
    if module == "numpy" and hasattr(value, "item"):
        return _from_numpy(value)
    return value.as_py() if module == "pyarrow.lib" and hasattr(value, "as_py") else value


def _from_numpy(value: Any) -> Any:
    """Convert a NumPy value; an array of one dimension or more, or a time that Python cannot hold, stays unchanged."""
    if value.ndim:
        return value
    found = value.item()
    if value.dtype.kind not in "mM" or not isinstance(found, int):
        return found
    rounded = value.astype(f"{value.dtype.kind}8[us]")
    return rounded.item() if rounded == value and not isinstance(rounded.item(), int) else value


def records_of(kind: Kind, value: Any) -> list[Any]:
    """The records as Python values: a table's rows as dicts, an array's as scalars or nested lists."""
    if kind == "table":
        names = value.schema.names
        return [dict(zip(names, row, strict=True)) for row in _table_rows(value)]
    if kind == "array":
        return _array_records(value)
    return value if isinstance(value, list) else list(value)


def _array_records(array: Any) -> list[Any]:
    if array.dtype.kind in "mM":
        array = _in_microseconds(array)
    records: list[Any] = array.tolist()
    return records


def _in_microseconds(array: Any) -> Any:
    """Moments or durations in Python's finest unit; NumPy makes bare integers of finer units."""
    rounded = array.astype(f"{array.dtype.kind}8[us]")
    differs = (rounded != array) & (array == array)
    if differs.any():
        position = int(differs.reshape(len(array), -1).any(axis=1).argmax())
        raise DataError(
            f"record {position}: {array[position]} is finer than microseconds",
            f'Round it, as in `array.astype("{array.dtype.kind}8[us]")`.',
        )
    return rounded


def _table_rows(table: Any) -> Iterable[Sequence[Any]]:
    if not table.num_columns:
        return [()] * int(table.num_rows)
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def tabulate(kind: Kind, value: Any, columns: Sequence[str] = ()) -> Rows:
    """The partition as rows of `columns`, or of the columns its first record implies.

    Dicts and NumPy records with named fields go by name and must have exactly the columns; tuples, lists and NumPy
    arrays of one dimension go by position (`_0`.. without names); anything else is a single column.
    Raises DataError with the position of the first record that does not fit.
    """
    if kind == "table":
        names = tuple(value.schema.names)
        return _projected(Rows(names, _table_rows(value)), columns)
    if kind == "array" and value.ndim == 1 and value.dtype.names:
        fields = [_array_records(value[name]) for name in value.dtype.names]
        return _projected(Rows(tuple(value.dtype.names), list(zip(*fields, strict=True))), columns)
    if kind == "array":
        names = array_names(value, columns)
        return Rows(names, _array_records(value if value.ndim == 2 else value.reshape(-1, 1)))
    records = records_of(kind, value)
    names = tuple(columns) or (_implied(records[0]) if records else ())
    if names and {tuple}.issuperset(map(type, records)) and {len(names)}.issuperset(map(len, records)):
        return Rows(names, records)
    return Rows(names, [_row(record, names, position) for position, record in enumerate(records)])


def numbered(width: int) -> tuple[str, ...]:
    return tuple(f"_{index}" for index in range(width))


def array_names(array: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """The declared names of the array's columns, or numbers when none is declared. Raises DataError when they differ
    in number."""
    if array.ndim > 2:
        raise DataError(f"an array of shape {array.shape} has no columns", "Return an array of 1 or 2 dimensions.")
    width = array.shape[1] if array.ndim == 2 else 1
    if columns and len(columns) != width:
        raise DataError(
            f"the array has {width} columns, {len(columns)} are declared: {', '.join(columns)}",
            "Make `columns` match the array's second dimension.",
        )
    return tuple(columns) or numbered(width)


def _projected(rows: Rows, columns: Sequence[str]) -> Rows:
    if not columns or tuple(columns) == rows.names:
        return rows
    check_columns(rows.names, columns)
    order = [rows.names.index(name) for name in columns]
    return Rows(tuple(columns), ([row[index] for index in order] for row in rows.values))


def check_columns(present: Sequence[str], declared: Sequence[str]) -> None:
    """Raises DataError unless both hold the same columns, in any order."""
    if sorted(declared) != sorted(present):
        raise DataError(
            f"the table has the columns {', '.join(present)}; declared are {', '.join(declared)}",
            "Make `columns` name the table's columns, or leave it out.",
        )


def _shaped(record: Any) -> Any:
    """Return a row of a NumPy array as a list, one with named fields as a dict; any other record unchanged."""
    if type(record).__module__ != "numpy" or not (record.ndim == 1 or record.dtype.names):
        return record
    if record.ndim:
        return _array_records(record)
    return {name: record[name] for name in record.dtype.names}


def _implied(record: Any) -> tuple[str, ...]:
    record = _shaped(record)
    if isinstance(record, dict):
        if not record or not all(isinstance(name, str) for name in record):
            raise DataError("record 0: the keys of a dict must be column names, and at least one", "Use str keys.")
        return tuple(record)
    return numbered(len(record)) if isinstance(record, tuple | list) else ("_0",)


def _row(record: Any, names: tuple[str, ...], position: int) -> Sequence[Any]:
    record = _shaped(record)
    if isinstance(record, dict):
        return _row_of_dict(record, names, position)
    row = record if isinstance(record, tuple | list) else (record,)
    if len(row) != len(names) or not row:
        raise DataError(
            f"record {position} has {len(row)} fields for {len(names)} columns ({', '.join(names)})",
            "Return records of one shape, and correct `columns`.",
        )
    return row


def _row_of_dict(record: dict[Any, Any], names: tuple[str, ...], position: int) -> Sequence[Any]:
    try:
        if len(record) == len(names):
            return [record[name] for name in names]
    except KeyError:
        pass
    missing = [name for name in names if name not in record]
    extra = [str(key) for key in record if key not in names]
    wrong = "; ".join(f"{what} {', '.join(keys)}" for what, keys in (("lacks", missing), ("also has", extra)) if keys)
    raise DataError(
        f"record {position} {wrong}",
        f"Every record needs exactly the columns {', '.join(names)}; use None for no value.",
    )


def first_failing(values: Iterable[Any], check: Callable[[Any], object]) -> int:
    """Return the position of the first value for which `check` raises, or -1."""
    for position, value in enumerate(values):
        try:
            check(value)
        except Exception:  # noqa: BLE001 - only the failure matters, not its type
            return position
    return -1
