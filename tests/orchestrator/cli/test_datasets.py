"""Records as lines of JSON, as `treadle result` prints them."""

from __future__ import annotations

import json
import math
from datetime import date
from typing import Any

import numpy as np
import pytest

from treadle.cli.view.datasets import LARGE, _line, _pieces  # private: a small unit of the output


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


@pytest.mark.parametrize(
    "record",
    [
        list(range(3 * LARGE)),
        {"a": [None] * (LARGE + 1), 4: "x", "empty": []},
        (1, [[0.5] * (LARGE + 1), {"b": math.inf}]),
        np.arange(2.5 * LARGE),
        np.array([math.nan] * (LARGE + 1)),
        np.ones((3, LARGE), np.int8),
        [np.zeros(2 * LARGE), 1],
    ],
    ids=lambda record: type(record).__name__,
)
def test_pieces_of_a_large_record_are_its_line(record: Any) -> None:
    pieces = list(_pieces(record))
    assert json.loads("".join(pieces)) == json.loads(_line(record))
    assert max(map(len, pieces)) < 10 * LARGE


def test_first_piece_of_an_array_does_not_wait_for_the_others() -> None:
    class Counted(np.ndarray[Any, Any]):
        lists = 0

        def tolist(self) -> Any:
            Counted.lists += 1
            return super().tolist()

    pieces = _pieces(np.zeros(1000 * LARGE).view(Counted))
    assert (next(pieces), next(pieces)[:3]) == ("[", "0.0")
    assert Counted.lists == 1
