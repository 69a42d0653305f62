"""Logs of a long-running process: text lines, or JSON objects for collectors."""

from __future__ import annotations

import json
import logging
import sys
from typing import Literal

FIELDS = ("run", "workflow", "stage", "partition", "attempt", "failure", "final", "seconds", "trigger")
"""Fields that records may have besides their message, always under these names."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Text of events and errors with control characters escaped, so that a terminal does not interpret them."""
    return text.translate(_CONTROLS)


def set_up(format: Literal["text", "json"], level: str) -> None:
    """Send treadle's records of at least `level`, and the warnings of all other loggers, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("treadle").setLevel(level.upper())


class JsonLines(logging.Formatter):
    """One object for each record, with the time as RFC 3339 in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        from treadle.primitives.events.decode import rfc3339

        line: dict[str, object] = {"time": rfc3339(record.created), "level": record.levelname.lower()}
        line |= {"logger": record.name, "message": record.getMessage()}
        line |= _fields(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """`10:04:12 WARNING message run=... stage=...`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # the name comes from logging
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return super().formatMessage(record) + fields


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
