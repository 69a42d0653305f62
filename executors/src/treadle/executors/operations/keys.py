"""The keys of a partition's records, computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.shuffling.folds import pair
from treadle.primitives.shuffling.key_columns import is_array

from ..program import By
from .attempt_state import Attempt
from .record_flow import Flow, batches

_BY_KEY = "`by: key` needs records that are pairs (key, value)"


def keys_of(by: By, stage: str, kind: Kind, value: Any, attempt: Attempt, start: int = 0) -> Any:
    """The key of every record: a list, or a NumPy or Arrow array if the partition has columns.

    `start` is the position of the first record. Raises DataError when a record has no key, StageFailed when the key
    function raises.
    """
    if by.function:
        return _by_function(by.function, stage, kind, value, attempt, start)
    if by.columns:
        return _columns(by.columns, kind, value)
    return firsts(kind, value, start)


def keyed(by: By, stage: str, kind: Kind, parts: Iterator[Any], attempt: Attempt) -> Iterator[tuple[Any, Any]]:
    """(keys, part) for each of the parts, in order."""
    start = 0
    for part in parts:
        count = codec.rows(kind, part)
        if count:
            yield keys_of(by, stage, kind, part, attempt, start), part
        start += count


def firsts(kind: Kind, value: Any, start: int = 0) -> Any:
    """The first element of each pair; the first record has the position `start`."""
    if kind == "table":
        raise DataError(f"{_BY_KEY}; the rows of a table are none", "Name columns instead: `by: [column]`.")
    if kind == "array":
        return _field(value, 0)
    check_pairs(value, start)
    return [record[0] for record in value]


def seconds(kind: Kind, value: Any) -> Sequence[Any]:
    """The second element of each pair, for records checked by `firsts`."""
    return _field(value, 1) if kind == "array" else [record[1] for record in value]


def check_pairs(records: Sequence[Any], start: int = 0) -> None:
    """Raises DataError for the first record that is not a sequence of two."""
    if {tuple, list}.issuperset(map(type, records)) and {2}.issuperset(map(len, records)):
        return
    for position, record in enumerate(records, start):
        try:
            pair(record)
        except DataError as error:
            raise DataError(f"record {position}: {error.message}", error.hint) from None


def _field(array: Any, index: int) -> Any:
    if array.dtype.names is None and array.ndim == 2 and array.shape[1] == 2:
        return array[:, index]
    raise DataError(
        f"{_BY_KEY}; the array has shape {array.shape} and dtype {array.dtype}",
        "Use `by: module:f` with a vectorised function.",
    )


def _columns(columns: tuple[str, ...], kind: Kind, value: Any) -> Any:
    if kind == "array":
        raise DataError("`by: [columns]` needs a table; this is an array", "Use `by: module:f`.")
    if kind == "objects":
        return _members(columns, value)
    for name in columns:
        if name not in value.column_names:
            raise DataError(
                f"the table has no column {name!r}; it has {', '.join(value.column_names)}", "Correct `by`."
            )
    chunks = [value.column(name).combine_chunks() for name in columns]
    if len(columns) == 1:
        return chunks[0]
    import pyarrow

    return pyarrow.StructArray.from_arrays(chunks, names=list(columns))


def _members(columns: tuple[str, ...], records: Sequence[Any]) -> list[Any]:
    try:
        if len(columns) == 1:
            return [record[columns[0]] for record in records]
        return [tuple(record[name] for name in columns) for record in records]
    except (KeyError, TypeError, IndexError) as error:
        raise DataError(f"a record has no {', '.join(columns)}: {error!r}", "Correct `by`, or the records.") from error


def _by_function(reference: str, stage: str, kind: Kind, value: Any, attempt: Attempt, start: int) -> Any:
    function, _, vectorized = attempt.services.function(reference)
    if kind != "objects" and vectorized:
        try:
            keys = function(value)
            keys = keys if isinstance(keys, list) or is_array(keys) else list(keys)  # a Series has an index of its own
            count = len(keys)
        except BaseException as error:
            raise attempt.fail(stage, None, error) from error
        if count != codec.rows(kind, value):
            wrong = f"the key function returned {count} keys for {codec.rows(kind, value)} records"
            raise UsageError(wrong, "A vectorised key function returns one key for each row, in order.")
        return keys
    found: list[Any] = []
    for batch in batches(Flow(kind, (value,))):
        rest = iter(batch)
        try:
            found += [function(record) for record in rest]
        except BaseException as error:
            position = start + len(found) + len(batch) - length_hint(rest) - 1
            raise attempt.fail(stage, position, error) from error
    return found
