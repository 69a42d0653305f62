"""Text of events and errors cannot control the terminal that displays it."""

from __future__ import annotations

import logging

import pytest

from treadle.cli.common import formatting
from treadle.cli.common.exit_codes import complain, say
from treadle.orchestrator.telemetry.logs import TextLines, printable

CLEAR = "\x1b[2J\x1b]0;owned\x07\x9b31m"


def test_control_characters_are_shown_escaped() -> None:
    assert printable(f"a{CLEAR}b") == r"a\x1b[2J\x1b]0;owned\x07\x9b31mb"
    assert printable("a\r\x00\x7f") == r"a\x0d\x00\x7f"


@pytest.mark.parametrize("text", ["two\nlines", "a\ttab", "ünïcödé 漢字 🧵 → ·"])
def test_everything_else_stays(text: str) -> None:
    assert printable(text) == text


def test_lines_for_people_tables_and_logs_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"reason: {CLEAR}")
    say(CLEAR)
    assert "\x1b" not in "".join(capsys.readouterr())
    assert "\x1b" not in "".join(formatting.columns([["letter", "reason"], ["1", CLEAR]]))
    failed = logging.LogRecord("treadle", logging.WARNING, "", 0, "attempt failed: %s", (CLEAR,), None)
    assert "\x1b" not in TextLines().format(failed)
