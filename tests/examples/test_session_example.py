"""The examples of sessions, against a server of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

EXAMPLES = Path(__file__).parents[2] / "examples/session"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("examples") / "home"
    yield folder
    embedded.down(Home(folder))


def printed(home: Path, name: str, *arguments: str) -> str:
    """The output of an example."""
    program = [sys.executable, str(EXAMPLES / name), *arguments]
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    return subprocess.run(program, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_example_counts_the_words_of_all_files(home: Path, tmp_path: Path) -> None:
    for number, text in enumerate(("the sun the sea", "The sun", "a star")):
        (tmp_path / f"{number}.txt").write_text(text)
    counts = [line.split() for line in printed(home, "words.py", f"{tmp_path}/*.txt").splitlines()]
    assert counts == [["3", "the"], ["2", "sun"], ["1", "sea"], ["1", "a"], ["1", "star"]]


def test_example_finds_the_degree_of_the_curve(home: Path) -> None:
    assert printed(home, "search.py") == "degree: 3\n"


def test_example_classifies_images_that_it_has_not_seen(home: Path) -> None:
    (found,) = re.fullmatch(r"accuracy: (\d\.\d\d)\n", printed(home, "features.py")).groups()  # type: ignore[union-attr]
    assert float(found) > 0.9


def test_example_sorts_numbers_into_parts_of_about_equal_size(home: Path) -> None:
    found = re.fullmatch(
        r"100000 numbers in 4 sorted parts; the largest has (\d\d)%\n", printed(home, "sort.py", "100000")
    )
    assert found is not None
    assert int(found[1]) < 30


def test_example_finds_the_factor_of_the_best_classifier(home: Path) -> None:
    assert printed(home, "grid_search.py", "100", "10000") == "factor: 100.0\nrecognised: 88.6%\n"
