"""The tests of docs/testing.md, run by pytest as the page shows."""

from __future__ import annotations

from pathlib import Path

from doc_pages import ROOT, run_tests

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home


def test_tests_of_the_page_pass(tmp_path: Path) -> None:
    try:
        passed, shown = run_tests(ROOT / "docs" / "testing.md", tmp_path)
    finally:
        embedded.down(Home(tmp_path / "made" / "home0"))
    assert passed == shown
