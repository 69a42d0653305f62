"""`combine` before a shuffle folds records as they arrive."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from executors import combining_functions as functions
from executors.bench import Bench, call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.executors.operations.record_flow import next_size
from treadle.executors.program import By, MapRecords, Scatter
from treadle.primitives.shuffling.folds import fold_by_key
from treadle.primitives.shuffling.keys import stable_hash


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
def test_first_failure_in_program_order_counts(bench: Bench, function: Any, stage: str, error: str) -> None:
    failure = bench.failure(mapping(function), source=list(range(10)), tail=combining(functions.refuses))
    assert (failure.stage, failure.error) == (stage, error)


@pytest.mark.parametrize("function", [functions.no_pairs, functions.triples])
def test_record_is_named_by_its_position_when_it_is_not_a_pair(bench: Bench, function: Any) -> None:
    failure = bench.failure(mapping(function), source=list(range(10)), tail=combining(functions.keep_first))
    assert failure.stage == "group"
    assert "record 5" in failure.message


def test_fold_cannot_write_to_arrays_it_is_given(bench: Bench) -> None:
    failure = bench.failure(mapping(functions.arrays), source=[0, 1], tail=combining(functions.writes))
    assert (failure.stage, failure.error) == ("group", "ValueError")
    assert "read-only" in failure.message


PLAIN = [("a", 1), ("b", 2), ("a", 2.5), (1, "x"), (True, 3), (0, 7), (None, None)]
CONVERTED = [(1.0, 4), (-0.0, 6), (math.nan, 5), (("t", 1), 8), (("t", math.nan), 9), ["a", 10]]
LOOKED_INTO = [("a", ("x", 1)), ["c", [11]], ("a", [12])]
RECORDS = st.sampled_from(PLAIN + CONVERTED + LOOKED_INTO)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(st.tuples(RECORDS, st.integers(1, 4)), max_size=20))
@pytest.mark.parametrize("room", [0, 300], ids=["roomy", "tight"])
def test_folds_follow_the_definition_for_all_records(tmp_path: Path, room: int, records: list[tuple[Any, int]]) -> None:
    repeated = [record for record, times in records for _ in range(times)]
    wanted: list[list[Any]] = [[], []]
    for pair in fold_by_key(repeated, functions.pair_up):
        wanted[stable_hash(pair[0]) % 2].append(pair)
    bench = Bench(tmp_path, room=room)
    assert repr(bench.parts(source=repeated, tail=combining(functions.pair_up))) == repr(wanted)


def test_memory_of_records_is_measured_by_their_content() -> None:
    assert next_size([("key", "value")] * 64, 64) == 128
    assert next_size([("key", "value" * 10_000)] * 64, 64) == 32
