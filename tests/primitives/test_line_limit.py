"""Log lines caused by strangers are bounded, and none is lost without a count."""

from __future__ import annotations

import logging

import pytest

from treadle.primitives.log_rate_limit import LineLimit, limited_logger


def line(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("n", logging.WARNING, "p", 1, text, arguments, None)


def test_line_limit_passes_a_few_lines_and_counts_the_rest() -> None:
    now = 0.0
    limit = LineLimit(most=2, seconds=60.0, clock=lambda: now)
    assert [limit.filter(line("%s: it ended", "a")) for _ in range(5)] == [True, True, False, False, False]
    assert limit.filter(line("%s: it ended", "b")), "of another listener"
    assert limit.filter(line("%s: it began", "a")), "of another kind"
    now = 60.0
    again = line("%s: it ended", "a")
    assert limit.filter(again)
    assert again.getMessage() == "a: it ended (and 3 times before)"
    another = line("%s: it ended", "a")
    assert limit.filter(another)
    assert another.getMessage() == "a: it ended"


def test_line_limit_has_bounded_memory() -> None:
    limit = LineLimit(most=1)
    for number in range(5000):
        limit.filter(line(f"{number}"))
    assert len(limit._kinds) <= 1000  # private: the bound has no other sign


def test_limited_logger_has_one_limit(caplog: pytest.LogCaptureFixture) -> None:
    logger = limited_logger("treadle.tests.limited")
    assert limited_logger("treadle.tests.limited") is logger
    assert len(logger.filters) == 1
    for _ in range(20):
        logger.warning("again")
    assert len(caplog.records) == 5
