"""Code digests: names imported from outside the project."""

from __future__ import annotations

from pathlib import Path

import pytest
from executors.code_bench import changed, code_in

BODY = "\ndef f(x): return helped(x)\ndef helped(x): return g(x)\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from math import floor as g", "from math import ceil as g"),
        ("import math as g", "import cmath as g"),
        ("from numpy import sin as g", "from numpy import cos as g"),
        ("try:\n    from numpy import sin as g\nfinally: pass", "try:\n    from numpy import cos as g\nfinally: pass"),
    ],
)
def test_another_import_under_the_same_name_counts(tmp_path: Path, old: str, new: str) -> None:
    assert changed(code_in(tmp_path, {"main": old + BODY}), code_in(tmp_path, {"main": new + BODY})) == {"main.py:g"}


@pytest.mark.parametrize("more", ["from math import tan", "import math", "from math import ceil as h"])
def test_imports_that_are_not_reached_do_not_count(tmp_path: Path, more: str) -> None:
    source = f"from math import floor as g{BODY}"
    assert code_in(tmp_path, {"main": source}) == code_in(tmp_path, {"main": f"{more}\n{source}"})
