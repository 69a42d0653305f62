"""Encoding partitions as output parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..encoding.references import Kind
from ..encoding.tabular import conversion, type_name
from ..errors import DataError
from ..stores.atomic_files import Buffer
from .options import Format, WriteOptions
from .rows import plain, records_of, tabulate


def suffix(format: Format) -> str:
    """File name extension of the format's parts, without the dot."""
    return {"text": "txt", "fixed": "bin"}.get(format, format)


def encode_part(kind: Kind, value: Any, options: WriteOptions) -> Sequence[Buffer]:
    """The partition as the bytes of one file, in pieces; equal partitions give equal bytes.

    Raises DataError with the position of the first record that the format cannot hold.
    """
    match options.format:
        case "text":
            return _encode_text(records_of(kind, value))
        case "jsonl":
            return _encode_json_lines(records_of(kind, value))
        case "csv":
            return _encode_csv(kind, value, options)
        case "parquet":
            from .tables import encode_parquet

            return encode_parquet(kind, value, options)
        case "npy":
            from .arrays import encode_npy

            return encode_npy(kind, value)
        case "fixed":
            from .arrays import encode_fixed

            return encode_fixed(kind, value)


def _encode_text(records: list[Any]) -> Sequence[bytes]:
    if not records:
        return [b""]
    try:
        text = "\n".join(records)
    except TypeError:
        raise _not_a_line(records) from None
    if text.count("\n") >= len(records) or "\r\n" in text or text.endswith("\r"):
        raise _not_a_line(records)
    return [_utf8(text, "a record"), b"\n"]


def _not_a_line(records: list[Any]) -> DataError:
    for position, record in enumerate(records):
        if not isinstance(record, str):
            return DataError(
                f"record {position} is of type {type(record).__name__}; format text takes str",
                conversion(record),
            )
        if "\n" in record or record.endswith("\r"):
            return DataError(
                f"record {position} contains a line end, so it would not read back as one line",
                "split or escape it, or write jsonl",
            )
    raise AssertionError("no record is at fault")


def _encode_csv(kind: Kind, value: Any, options: WriteOptions) -> Sequence[bytes | memoryview]:
    from .csv import encode_csv

    if kind == "table" and value.num_columns:
        from .csv_tables import encode_csv_table

        with suppress(DataError):  # row by row, the first record that does not fit is found
            return list(encode_csv_table(value, options)) or [b""]
    rows = tabulate(kind, value, [name for name, _ in options.columns])
    return [_utf8(encode_csv(rows, options), "a field")]


def _encode_json_lines(records: list[Any]) -> Sequence[bytes]:
    """Compact JSON, UTF-8; NumPy scalars as the number they hold, everything else by the rules of `json`."""
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_scalar).encode
    lines: list[str] = []
    try:
        lines.extend(map(encode, records))
    except (TypeError, ValueError, RecursionError) as error:
        hint = error.hint if isinstance(error, _NoJson) else "Return JSON values; NaN has none."
        raise DataError(f"record {len(lines)} is not JSON: {error}", hint) from None
    return [_utf8("\n".join(lines), "a record"), b"\n"] if lines else [b""]


class _NoJson(TypeError):
    """A value of a type that JSON does not have."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"JSON has no {type_name(value)}")
        self.hint = conversion(value)


def _scalar(value: Any) -> Any:
    converted = plain(value)
    if converted is value or isinstance(converted, list):
        raise _NoJson(value)
    return converted


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start)
        raise DataError(
            f"{what} on line {line + 1} of the part has a lone surrogate, which UTF-8 cannot hold",
            "Decode the text it came from with the right encoding.",
        ) from None
