"""Loggers of attempts: what user functions write to `context.logger`."""

from __future__ import annotations

import logging
import re
import sys
from datetime import datetime

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\w+(?: \d+)?) (\S+\[\d+\]) (.*)")


class _Lines(logging.Formatter):
    """`2026-11-21T10:47:43.945Z INFO read[3] message`; in UTC, since attempts are on other hosts too."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, the name is logging's
        from treadle.primitives.events.decode import rfc3339

        return rfc3339(record.created)


class _AttemptLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what `sys.stderr` is at that moment: the log of the attempt under way."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Lines())

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _AttemptLog()


def attempt_logger(name: str) -> logging.Logger:
    """A logger outside the logging tree, so that nothing configured elsewhere changes what it does."""
    logger = logging.Logger(name, logging.INFO)
    logger.addHandler(_handler)
    return logger


def logged(line: str) -> tuple[float, str, str] | None:
    """Of a line that such a logger wrote: when (seconds since the epoch), its name, and the rest with the level."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    when, level, name, message = found.groups()
    return datetime.fromisoformat(when).timestamp(), name, f"{level} {message}"
