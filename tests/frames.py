"""A frame in the style of pandas and Polars, without either library: columns, and the Arrow PyCapsule interface."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class Series:
    """A column of a frame."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._values = values

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._values.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return iter(self._values.to_pylist())

    def __getitem__(self, label: int) -> Any:
        """By label as in pandas, not by position."""
        return self._values.to_pylist()[-1 - label]


class Frame:
    """Its iterator gives the names of its columns, as in pandas."""

    def __init__(self, columns: dict[str, list[Any]], metadata: dict[str, str] | None = None) -> None:
        self._table = pa.table(columns).replace_schema_metadata(metadata)

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)

    def __getitem__(self, name: str) -> Series:
        return Series(self._table[name])

    def __iter__(self) -> Any:
        return iter(self.columns)
