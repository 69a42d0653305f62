"""The tails of a program: partitions scattered, combined, cut and discarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from executors.bench import Bench, call
from executors.operation_functions import FIRST, FIXTURES, by, concat, first_column, name, tens
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.operations.grouping import plain
from treadle.executors.program import (
    Broadcast,
    By,
    Cut,
    Discard,
    MapRecords,
    Reduce,
    Scatter,
    Sort,
    ToBroadcast,
    Value,
)
from treadle.primitives.errors import FailureClass
from treadle.primitives.shuffling.keys import canonical, identity

# -- tails -------------------------------------------------------------------------------------------------------------


@FIXTURES
@given(keys=st.lists(st.integers(-20, 20), max_size=40), partitions=st.integers(1, 6), ranged=st.booleans())
def test_a_vectorised_scatter_is_the_scatter_of_each_record(
    bench: Bench, keys: list[int], partitions: int, ranged: bool
) -> None:
    boundaries = Value(list(range(partitions - 1))) if ranged else None
    records = [(key, place) for place, key in enumerate(keys)]
    plain = bench.parts(source=records, tail=Scatter("s", FIRST, partitions, boundaries))
    array = np.array(records, dtype=np.int64).reshape(-1, 2)
    table = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(range(len(keys)), pa.int64())})
    arrays = bench.parts(
        source=bench.blocks_of(array, kind="array"), tail=Scatter("s", by(first_column), partitions, boundaries)
    )
    tables = bench.parts(
        source=bench.blocks_of(table, kind="table"), tail=Scatter("s", By(columns=("k",)), partitions, boundaries)
    )
    assert [[tuple(row) for row in part.tolist()] for part in arrays] == plain
    assert [[tuple(row.values()) for row in part.to_pylist()] for part in tables] == plain


def test_combine_folds_once_per_key_and_keeps_the_place_of_the_first(bench: Bench) -> None:
    records = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", "5")]
    tail = Scatter("s", FIRST, 1, combine=name(concat))
    assert bench.parts(source=records, tail=tail) == [[("a", "13"), ("b", "25"), ("c", "4")]]


def test_boundaries_may_come_from_a_broadcast_and_must_fit(bench: Bench) -> None:
    block = bench.outcome(ToBroadcast("b", single=True, limit=1000), source=[[2, 4]]).block
    assert block is not None
    tail = Scatter("s", FIRST, 3, Broadcast(block.slice(0)))
    assert bench.parts(source=[(4, 0), (1, 0), (2, 0)], tail=tail) == [[(1, 0)], [(2, 0)], [(4, 0)]]
    failure = bench.failure(source=[(1, 0)], tail=Scatter("s", FIRST, 3, Value([1])))
    assert (failure.failure, failure.stage) == (FailureClass.USER_ERROR, "s")


def test_a_failing_key_function_names_stage_and_record(bench: Bench) -> None:
    failure = bench.failure(source=[1, "x"], tail=Scatter("s", by(tens), 2))
    assert (failure.failure, failure.stage, failure.error) == (FailureClass.USER_ERROR, "s", "TypeError")
    assert failure.traceback.startswith("At record 1 of the input of s:\n")


def test_cut_makes_consecutive_parts_and_keeps_an_empty_one(bench: Bench) -> None:
    assert bench.parts(source=[1, 2, 3], tail=Cut(max_items=2)) == [[1, 2], [3]]
    assert bench.parts(source=[], tail=Cut(max_items=2)) == [[]]


def test_discard_keeps_no_block_but_counts_rows(bench: Bench) -> None:
    outcome = bench.outcome(source=[1, 2, 3], tail=Discard())
    assert (outcome.block, outcome.rows) == (None, 3)


def test_a_source_partition_of_which_a_record_was_taken_is_not_given_whole(bench: Bench) -> None:
    op = Reduce("r", "partition", uses=call(one_then_partitions))
    assert bench.records(op, source=bench.blocks_of([1, 2], [3], [4])) == [[1, [[3], [4]]]]
    assert bench.records(MapRecords("a", call(tens)), op, source=[10, 20]) == [[1, []]]


def one_then_partitions(values: Any) -> list[Any]:
    return [next(values), list(values.partitions())]


@pytest.mark.parametrize(
    "bad", [np.zeros((2, 3)), np.zeros(2), np.zeros(2, "i4,i4")], ids=["3 columns", "flat", "struct"]
)
def test_rows_of_an_array_are_pairs_only_with_two_columns(bench: Bench, bad: Any) -> None:
    failure = bench.failure(Sort("s", FIRST), source=bench.blocks_of(bad, kind="array"))
    assert failure.failure is FailureClass.USER_ERROR
    pairs = np.array([[2, 0], [1, 1]])
    assert bench.records(Sort("s", FIRST), source=bench.blocks_of(pairs, kind="array")).tolist() == [[1, 1], [2, 0]]


@pytest.mark.parametrize(
    "keys",
    [
        np.array([1, 2, 1], np.uint8),
        np.array([0.5, np.nan, np.nan]),
        np.array(["2026-01-02", "NaT", "NaT"], "M8[D]"),
        np.array([True, False, True]),
        pa.array(["x", None, "x"]),
        pa.array([1, None, 3], pa.int16()),
        pa.chunked_array([[1.5], [2.5, 1.5]]),
        pa.array([{"a": 1}, {"a": 2}, {"a": 1}]),
        [np.int64(1), 1.0, True],
    ],
    ids=str,
)
def test_keys_of_every_kind_of_array_become_plain_python(keys: Any) -> None:
    found, expected = plain(keys), [canonical(key) for key in keys]
    assert list(map(identity, found)) == list(map(identity, expected))
    assert list(map(type, found)) == list(map(type, expected))
