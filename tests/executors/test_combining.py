"""`combine` before a shuffle folds records as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from executors import combining_functions as functions

from treadle.executors.program import By, MapRecords, Scatter
from treadle.executors.testing.bench import Bench, call


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def combining(function: Any) -> Scatter:
    return Scatter("group", By(first=True), 2, combine=f"{functions.__name__}:{function.__name__}")


def mapping(function: Any, *, flat: bool = False) -> MapRecords:
    return MapRecords("map", call(function), flat=flat)


def test_records_are_not_kept_until_the_map_is_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions.Counted, "most", 0)
    bench.outcome(mapping(functions.many, flat=True), source=[0], tail=combining(functions.keep_first))
    assert 7 <= functions.Counted.most < functions.MANY / 4


@pytest.mark.parametrize(
    ("function", "stage", "error"),
    [(functions.pairs, "group", "ValueError"), (functions.fails_at_last, "map", "LookupError")],
)
def test_of_two_failures_the_one_that_comes_first_in_the_program_counts(
    bench: Bench, function: Any, stage: str, error: str
) -> None:
    failure = bench.failure(mapping(function), source=list(range(10)), tail=combining(functions.refuses))
    assert (failure.stage, failure.error) == (stage, error)


def test_record_that_is_no_pair_is_named_by_its_position(bench: Bench) -> None:
    failure = bench.failure(mapping(functions.no_pairs), source=list(range(10)), tail=combining(functions.keep_first))
    assert failure.stage == "group"
    assert "record 5" in failure.message


def test_fold_cannot_write_to_arrays_it_is_given(bench: Bench) -> None:
    failure = bench.failure(mapping(functions.arrays), source=[0, 1], tail=combining(functions.writes))
    assert (failure.stage, failure.error) == ("group", "ValueError")
    assert "read-only" in failure.message
