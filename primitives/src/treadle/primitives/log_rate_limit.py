"""A rate limit for log lines that unauthenticated callers can cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_KINDS = 1000


class LineLimit(logging.Filter):
    """Passes `most` lines of one kind in `seconds`; the first line after that reports how many were left out.

    Lines are of one kind when they have the same format and the same first argument.
    """

    def __init__(self, most: int = 5, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """Maps a kind to the start of its interval and the number of its lines since then."""

    def filter(self, record: logging.LogRecord) -> bool:
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind, now = (str(record.msg), str(first)), self._clock()
        began, count = self._kinds.get(kind, (now, 0))
        left_out = 0
        if now >= began + self._seconds:
            began, count, left_out = now, 0, max(0, count - self._most)
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        self._kinds[kind] = (began, count + 1)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} times before)", ()
        return count < self._most


def limited_logger(name: str) -> logging.Logger:
    """Return the logger of that name, with one LineLimit."""
    logger = logging.getLogger(name)
    if not any(isinstance(one, LineLimit) for one in logger.filters):
        logger.addFilter(LineLimit())
    return logger
