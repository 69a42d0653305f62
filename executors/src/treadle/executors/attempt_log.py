"""Loggers of attempts: user functions write to them through `context.logger`."""

from __future__ import annotations

import logging
import re
import sys
from datetime import datetime

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\w+(?: \d+)?) (\S+\[\d+\]) (.*)")


class _Lines(logging.Formatter):
    """Formats a line as `2026-11-21T10:47:43.945Z INFO read[3] message`. Times are in UTC, because attempts run on
    several hosts."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, logging's name
        from treadle.primitives.events.decode import rfc3339

        return rfc3339(record.created)


class _AttemptLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current `sys.stderr`, which is the log of the running attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Lines())

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _AttemptLog()


def attempt_logger(name: str) -> logging.Logger:
    """A logger outside the logging tree, so that logging configuration elsewhere does not affect it."""
    logger = logging.Logger(name, logging.INFO)
    logger.addHandler(_handler)
    return logger


def logged(line: str) -> tuple[float, str, str] | None:
    """Parse a line written by such a logger: (seconds since the epoch, logger name, level and message). None for any
    other line."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    when, level, name, message = found.groups()
    return datetime.fromisoformat(when).timestamp(), name, f"{level} {message}"
