"""Loggers of attempts: what user functions write to `context.logger`."""

from __future__ import annotations

import logging
import sys


class _AttemptLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what `sys.stderr` is at that moment: the log of the attempt under way."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _AttemptLog()


def attempt_logger(name: str) -> logging.Logger:
    """A logger outside the logging tree, so that nothing configured elsewhere changes what it does."""
    logger = logging.Logger(name, logging.INFO)
    logger.addHandler(_handler)
    return logger
