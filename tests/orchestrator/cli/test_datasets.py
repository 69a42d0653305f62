"""Records as lines of JSON, as `treadle result` prints them."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import numpy as np
import pytest

from treadle.orchestrator.cli.view.datasets import _line


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (7, "7"),
        (-(2**70), "-1180591620717411303424"),
        (True, "true"),
        (None, "null"),
        (0.5, "0.5"),
        (math.nan, '"nan"'),
        ("ä\n", '"ä\\n"'),
        (("word", 2), '["word", 2]'),
        ({"a": [1, (2, 3)], 4: date(2026, 1, 2)}, '{"a": [1, [2, 3]], "4": "2026-01-02"}'),
        (b"\x00", '"AA=="'),
        (np.int64(7), "7"),
        (np.array([[1, 2]]), "[[1, 2]]"),
    ],
    ids=repr,
)
def test_a_record_is_a_line_of_json(record: Any, line: str) -> None:
    assert _line(record) == line
