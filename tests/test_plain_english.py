"""The check of prose, on files of its own."""

from __future__ import annotations

import plain_english
import pytest
from plain_english import Line, check, comments, docstrings, prose
from plain_english import test_names as names_of_tests


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("Whoever asks is told what is there.", 3),
        ("Nobody stands in for those that are no members.", 4),
        ("The member sends its records to the driver.", 0),
    ],
)
def test_line_counts_patterns(text: str, matches: int) -> None:
    assert Line("a.md:1", text).matches == matches


def test_collectors_give_places_of_prose_and_no_code() -> None:
    source = '"""Module.\n\nSecond."""\nnobody = 1  # a comment\ndef test_member_sends():\n    """Claim."""\n'
    assert list(docstrings("a.py", source)) == [("a.py:1", "Module."), ("a.py:3", "Second."), ("a.py:6", "Claim.")]
    assert list(comments("a.py", source)) == [("a.py:4", "a comment")]
    assert list(names_of_tests("a.py", source)) == [("a.py:5", "test member sends")]
    assert list(prose("a.md", "one\n\ntwo")) == [("a.md:1", "one"), ("a.md:3", "two")]


def test_check_fails_and_prints_the_worst_line_when_an_area_is_above_its_ceiling(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [Line("a.md:1", "one two three four five"), Line("a.md:2", "nobody knows who")]
    monkeypatch.setitem(plain_english.CEILINGS, "docs", 2500)
    assert check("docs", lines, 1) == 0
    monkeypatch.setitem(plain_english.CEILINGS, "docs", 2499)
    assert check("docs", lines, 1) == 1
    assert "  a.md:2: nobody knows who\n" in capsys.readouterr().out
