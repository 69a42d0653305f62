"""The examples of sessions and shared objects, against a server of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("examples") / "home"
    yield folder
    embedded.down(Home(folder))


def printed(home: Path, name: str, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """The output of an example."""
    program = [sys.executable, str(EXAMPLES / name), *arguments]
    environ = {**os.environ, "TREADLE_HOME": str(home), **(environ or {})}
    return subprocess.run(program, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_example_counts_the_words_of_all_files(home: Path, tmp_path: Path) -> None:
    for number, text in enumerate(("the sun the sea", "The sun", "a star")):
        (tmp_path / f"{number}.txt").write_text(text)
    counts = [line.split() for line in printed(home, "session/words.py", f"{tmp_path}/*.txt").splitlines()]
    assert counts == [["3", "the"], ["2", "sun"], ["1", "sea"], ["1", "a"], ["1", "star"]]


def test_example_finds_the_degree_of_the_curve(home: Path) -> None:
    assert printed(home, "session/search.py") == "degree: 3\n"


def test_example_classifies_images_that_it_has_not_seen(home: Path) -> None:
    (found,) = re.fullmatch(r"accuracy: (\d\.\d\d)\n", printed(home, "session/features.py")).groups()  # type: ignore[union-attr]
    assert float(found) > 0.9


def test_example_sorts_numbers_into_parts_of_about_equal_size(home: Path) -> None:
    found = re.fullmatch(
        r"100000 numbers in 4 sorted parts; the largest has (\d\d)%\n", printed(home, "session/sort.py", "100000")
    )
    assert found is not None
    assert int(found[1]) < 30


def test_example_finds_the_factor_of_the_best_classifier(home: Path) -> None:
    assert printed(home, "session/grid_search.py", "100", "10000") == "factor: 100.0\nrecognised: 88.6%\n"


def test_example_adds_the_points_of_all_calls(home: Path) -> None:
    assert re.fullmatch(r"pi: 3\.14\d\n", printed(home, "objects/pi.py"))


def test_example_finds_the_centers_of_the_points(home: Path) -> None:
    lines = [list(map(float, line.split())) for line in printed(home, "objects/kmeans.py").splitlines()]
    assert np.allclose(lines, [[0, 0], [0, 10], [10, 0]], atol=0.1)


def test_example_learns_weights_from_all_workers(home: Path) -> None:
    (found,) = re.fullmatch(r"correct: (\d\d)%\n", printed(home, "objects/logistic.py")).groups()  # type: ignore[union-attr]
    assert int(found) > 85


def test_example_learns_a_sparse_model_without_waiting(home: Path) -> None:
    (found,) = re.fullmatch(r"correct: (\d\d)%\n", printed(home, "objects/hogwild.py")).groups()  # type: ignore[union-attr]
    assert int(found) > 72


def test_example_delivers_and_helps(home: Path) -> None:
    assert printed(home, "objects/santa.py", "3").startswith("3 deliveries; elves got help: ")
