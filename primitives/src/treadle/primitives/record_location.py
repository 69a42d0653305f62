"""The location of a record: its index in the partition, its key, its place in the input file."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

_SHOWN = 80
"""Characters of a key in a text."""


class RecordPlace(Struct, frozen=True):
    """The known location of the record that a function was called with; unknown fields are None."""

    position: int | None = None
    """Index in the partition of the stage's input, from 0."""
    key: Any = None
    """Key of the group, in a reduce per key."""
    uri: str | None = None
    """The input file, in a stage that reads files itself."""
    line: int | None = None
    """In a text format: the line where the record begins, from 1."""
    row: int | None = None
    """In Parquet, npy and fixed: index in the file, from 0."""
    from_byte: int = 0
    """The offset at which the count of lines begins, if not the start of the file."""

    @property
    def text(self) -> str:
        """The file and the line or row as readable text; empty when the file is unknown."""
        if self.uri is None:
            return ""
        if self.line is not None:
            since = f" counted from byte {self.from_byte}" if self.from_byte else ""
            return f"{self.uri}, line {self.line}{since}"
        return self.uri if self.row is None else f"{self.uri}, row {self.row}"


def key_text(key: Any) -> str:
    """The key as readable text."""
    text = repr(key)
    return f"key {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}"
