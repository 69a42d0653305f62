"""Programs of libraries that use multiprocessing print the same on treadle as on the standard library: with
`python -m treadle.multiprocessing`, and in a process that installs treadle by an import.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from libraries.test_thesis_programs import expected, output

JOBLIB = "grid_search.py", "10"
"""Also a program of the thesis: test_thesis_programs.py."""
RUNS: list[tuple[str, ...]] = [
    ("sentiment.py", "100"),  # pandarallel
    ("sampling.py", "5", "8"),  # emcee
    ("optimum.py", "3", "2"),  # SciPy
    ("environments.py", "3"),  # Gymnasium
    ("progress.py", "5000", "4"),  # tqdm
]
NAMES = [run[0] for run in RUNS]
IMPORTED = """
import runpy
import sys

import treadle.multiprocessing

treadle.multiprocessing.install()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_library_program_prints_the_same_on_treadle(run: tuple[str, ...]) -> None:
    assert output(run, "-m", "treadle.multiprocessing") == expected(run)


@pytest.mark.parametrize("run", [JOBLIB, *RUNS], ids=[JOBLIB[0], *NAMES])
def test_library_program_prints_the_same_after_an_import(run: tuple[str, ...], tmp_path: Path) -> None:
    launcher = tmp_path / "launcher.py"
    launcher.write_text(IMPORTED)
    assert output(run, str(launcher)) == expected(run)
