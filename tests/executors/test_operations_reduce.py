"""Sorts, reduces, broadcasts, samples and the ways a partition is cut up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.executors import Result
from treadle.executors.operations_groups import plain
from treadle.executors.program import (
    BlockInput,
    Broadcast,
    By,
    Cut,
    Cuts,
    Discard,
    MapRecords,
    Reduce,
    Sample,
    Scatter,
    Sort,
    ToBroadcast,
    Value,
)
from treadle.executors.testing.bench import Bench, call
from treadle.primitives import functions
from treadle.primitives.errors import FailureClass
from treadle.primitives.keys import canonical, identity, stable_hash

FIRST = By(first=True)
KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["a", "b", "é", ""]), st.floats(allow_infinity=False)
)
PAIRS = st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=30)
FIXTURES = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def name(function: Any) -> str:
    return functions.reference(function)


def by(function: Any) -> By:
    return By(function=name(function))


def concat(left: Any, right: Any) -> Any:
    """Associative, and tells order."""
    return left + right


def pair_up(left: Any, right: Any) -> Any:
    """Not associative: tells the shape of a fold."""
    return (left, right)


def tens(record: int) -> int:
    return record // 10


def as_list(key: Any, values: Iterator[Any]) -> list[Any]:
    return list(values)


def same(a: Any, b: Any) -> bool:
    return identity(tuple(a)) == identity(tuple(b)) if isinstance(a, list) else bool(identity(a) == identity(b))


# -- per key -----------------------------------------------------------------------------------------------------------


def grouped(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, list[Any]]]:
    """Groups in the order of first occurrence, by comparing every pair of keys."""
    groups: list[tuple[Any, list[Any]]] = []
    for key, value in pairs:
        for known, values in groups:
            if same(known, key):
                values.append(value)
                break
        else:
            groups.append((key, [value]))
    return groups


@FIXTURES
@given(sources=st.lists(PAIRS, min_size=1, max_size=3), partitions=st.integers(1, 5))
def test_scatter_then_gather_is_grouping_by_key(
    bench: Bench, sources: list[list[tuple[Any, int]]], partitions: int
) -> None:
    scattered = [bench.outcome(source=pairs, tail=Scatter("s", FIRST, partitions)).block for pairs in sources]
    reduce = Reduce("r", "key", uses=call(as_list), by=FIRST)
    together: list[Any] = []
    for target in range(partitions):
        slices = tuple(block.slice(target) for block in scattered if block is not None)
        groups = bench.records(reduce, source=BlockInput((slices,)))
        assert all(stable_hash(key) % partitions == target for key, _ in groups)
        together += groups
    expected = grouped([pair for pairs in sources for pair in pairs])
    assert len(together) == len(expected)
    for key, values in expected:
        assert [found for known, found in together if same(known, key)] == [values]


@FIXTURES
@given(pairs=PAIRS)
def test_a_fold_per_key_is_the_fold_of_each_group_in_order(bench: Bench, pairs: list[tuple[Any, int]]) -> None:
    texts = [(key, str(value)) for key, value in pairs]
    folded = bench.records(Reduce("r", "key", combine=name(concat), by=FIRST), source=texts)
    expected = [(key, "".join(values)) for key, values in grouped(texts)]
    assert [value for _, value in folded] == [value for _, value in expected]
    assert all(same(a, b) for (a, _), (b, _) in zip(folded, expected, strict=True))


def test_initial_is_folded_in_once_per_key_before_finish(bench: Bench) -> None:
    op = Reduce("r", "key", combine=name(concat), initial=Value(["i"]), finish=call(len_of, extra=100), by=FIRST)
    records = [("a", ["1"]), ("b", ["2"]), ("a", ["3"])]
    assert bench.records(op, source=records) == [("a", 103), ("b", 102)]


def len_of(accumulator: Any, extra: int = 0) -> int:
    return len(accumulator) + extra


def test_a_key_function_leaves_records_whole(bench: Bench) -> None:
    op = Reduce("r", "key", uses=call(as_list), by=by(tens))
    assert bench.records(op, source=[11, 25, 12]) == [(1, [11, 12]), (2, [25])]


def test_columns_group_rows_of_a_table(bench: Bench) -> None:
    table = pa.table({"k": ["x", "y", "x"], "n": [1, 2, 3]})
    op = Reduce("r", "key", uses=call(as_list), by=By(columns=("k",)))
    assert bench.records(op, source=bench.blocks_of(table, kind="table")) == [
        ("x", [{"k": "x", "n": 1}, {"k": "x", "n": 3}]),
        ("y", [{"k": "y", "n": 2}]),
    ]


def test_several_inputs_are_kept_apart_by_name(bench: Bench) -> None:
    left, right = [("a", 1), ("b", 2)], [("b", 3), ("c", 4), ("b", 5)]
    source = BlockInput((bench.blocks_of(left).inputs[0], bench.blocks_of(right).inputs[0]))
    op = Reduce("r", "key", uses=call(join), by=FIRST, names=("l", "r"))
    assert bench.records(op, source=source) == [
        ("a", {"l": [1], "r": []}),
        ("b", {"l": [2], "r": [3, 5]}),
        ("c", {"l": [], "r": [4]}),
    ]


def join(key: Any, values: dict[str, Iterator[Any]]) -> dict[str, list[Any]]:
    return {name: list(found) for name, found in values.items()}


def test_sorted_inputs_kept_apart_are_emitted_in_key_order(bench: Bench) -> None:
    left, right = [("b", 2), ("d", 1)], [("c", 4), ("a", 3), ("b", 5)]
    source = BlockInput((bench.blocks_of(left).inputs[0], bench.blocks_of(right).inputs[0]))
    reduce = Reduce("r", "key", uses=call(join), by=FIRST, names=("l", "r"), sorted=True)
    found = bench.records(Sort("s", FIRST), reduce, source=source)
    assert [key for key, _ in found] == ["a", "b", "c", "d"]
    assert found[1] == ("b", {"l": [2], "r": [5]})


def test_a_record_without_a_key_is_a_user_error_that_names_it(bench: Bench) -> None:
    failure = bench.failure(Reduce("r", "key", uses=call(as_list), by=FIRST), source=[("a", 1), "no"])
    assert failure.failure is FailureClass.USER_ERROR
    assert "record 1: a str" in failure.message


def test_metrics_of_a_reduce_per_key_are_aggregated_over_keys(bench: Bench) -> None:
    op = Reduce("r", "key", uses=call(count), by=FIRST, metrics={"largest": "max"})
    assert bench.outcome(op, source=[("a", 1), ("b", 1), ("a", 1)]).metrics == {"r": {"largest": 2}}


def count(key: Any, values: Iterator[Any]) -> Result:
    number = len(list(values))
    return Result(number, {"largest": number})


# -- the whole partition -----------------------------------------------------------------------------------------------


def tree(values: list[Any], fan_in: int) -> Any:
    """Level by level, as docs/semantics.md has it."""
    while len(values) > 1:
        groups = [values[start : start + fan_in] for start in range(0, len(values), fan_in)]
        values = [list(itertools.accumulate(group, pair_up))[-1] for group in groups]
    return values[0]


@pytest.mark.parametrize("fan_in", [2, 3, 4, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 17, 40])
def test_a_fold_in_one_task_has_the_shape_of_the_tree(bench: Bench, count: int, fan_in: int) -> None:
    op = Reduce("r", "partition", combine=name(pair_up), fan_in=fan_in)
    assert bench.records(op, source=list(range(count))) == [tree(list(range(count)), fan_in)]


def test_a_fold_over_nothing_is_initial_or_nothing(bench: Bench) -> None:
    op = Reduce("r", "partition", combine=name(concat))
    assert bench.records(op, source=[]) == []
    op = Reduce("r", "partition", combine=name(concat), initial=Value(None), finish=call(repr_of))
    assert bench.records(op, source=[]) == ["None"]


def repr_of(accumulator: Any) -> str:
    return repr(accumulator)


def test_initial_is_the_leftmost_operand_at_the_root(bench: Bench) -> None:
    op = Reduce("r", "partition", combine=name(pair_up), fan_in=2, initial=Value("i"))
    assert bench.records(op, source=[1, 2, 3]) == [("i", ((1, 2), 3))]


def test_uses_gets_all_values_of_every_source_partition_in_order(bench: Bench) -> None:
    op = Reduce("r", "partition", uses=call(as_is))
    assert bench.records(op, source=bench.blocks_of([1, 2], [], [3])) == [[1, 2, 3]]
    assert bench.records(op, source=BlockInput(((),))) == [[]]


def as_is(values: Any) -> list[Any]:
    return list(values)


def test_uses_may_go_through_the_source_partitions_in_their_own_kind(bench: Bench) -> None:
    op = Reduce("r", "partition", uses=call(by_partition))
    assert bench.records(op, source=bench.blocks_of([1, 2], [3])) == [["list", [1, 2], "list", [3]]]
    source = bench.blocks_of(np.array([1, 2]), np.array([3]), kind="array")
    assert bench.records(op, source=source) == [["ndarray", [1, 2], "ndarray", [3]]]
    mapped = bench.records(MapRecords("a", call(tens)), op, source=[11, 22])
    assert mapped == [["list", [1, 2]]]


def by_partition(values: Any) -> list[Any]:
    return [item for part in values.partitions() for item in (type(part).__name__, list(part))]


def test_records_of_an_array_are_folded_row_by_row(bench: Bench) -> None:
    source = bench.blocks_of(np.array([[1, 2], [3, 4]]), np.array([[5, 6]]), kind="array")
    (total,) = bench.records(Reduce("r", "partition", combine=name(concat)), source=source)
    assert total.tolist() == [9, 12]


def test_a_scalar_metric_of_a_reduce_has_its_declared_type(bench: Bench) -> None:
    op = Reduce("r", "partition", uses=call(summary), metrics={"rows": "integer", "text": "string", "ok": "boolean"})
    assert bench.outcome(op, source=[1, 2]).metrics == {"r": {"rows": 2, "text": "t", "ok": True}}
    op = Reduce("r", "partition", uses=call(summary), metrics={"rows": "string", "text": "string", "ok": "boolean"})
    assert "'rows' is a int, not a string" in bench.failure(op, source=[1, 2]).message


def summary(values: Iterator[Any]) -> Result:
    return Result(None, {"rows": len(list(values)), "text": "t", "ok": True})


# -- sort, sample, cuts, broadcast -------------------------------------------------------------------------------------


def test_sort_is_stable_and_spans_the_source_partitions(bench: Bench) -> None:
    source = bench.blocks_of([(2, "a"), (1, "b")], [(1, "c"), (None, "d")])
    assert bench.records(Sort("s", FIRST), source=source) == [(None, "d"), (1, "b"), (1, "c"), (2, "a")]


def test_tables_and_arrays_are_sorted_as_such(bench: Bench) -> None:
    table = pa.table({"k": [2, 1, 2], "v": ["a", "b", "c"]})
    outcome = bench.outcome(Sort("s", By(columns=("k",))), source=bench.blocks_of(table, kind="table"))
    assert outcome.block is not None
    assert bench.values(outcome.block)[0].to_pydict() == {"k": [1, 2, 2], "v": ["b", "a", "c"]}
    array = np.array([[3, 0], [1, 1], [2, 2]])
    found = bench.records(Sort("s", by(first_column)), source=bench.blocks_of(array, kind="array"))
    assert found.tolist() == [[1, 1], [2, 2], [3, 0]]


def first_column(rows: np.ndarray[Any, Any]) -> Any:
    return rows[:, 0]


def test_a_vectorised_key_function_must_return_a_key_for_each_row(bench: Bench) -> None:
    source = bench.blocks_of(np.zeros((3, 2)), kind="array")
    failure = bench.failure(Sort("s", by(too_few)), source=source)
    assert "returned 1 keys for 3 records" in failure.message


def too_few(rows: np.ndarray[Any, Any]) -> Any:
    return rows[:1, 0]


def test_samples_of_all_partitions_cut_the_keys_evenly(bench: Bench) -> None:
    sources = [[(key, 0) for key in range(start, 4000, 4)] for start in range(4)]
    samples = [bench.records(Sample("s", FIRST), source=pairs, index=index) for index, pairs in enumerate(sources)]
    assert [sample[0][1] for sample in samples] == [1000] * 4
    (boundaries,) = bench.records(Cuts("s", 4), source=bench.blocks_of(*samples))
    assert boundaries == sorted(boundaries)
    assert [round(boundary, -2) for boundary in boundaries] == [1000, 2000, 3000]


def test_a_broadcast_is_one_record(bench: Bench) -> None:
    assert bench.records(ToBroadcast("b", single=False, limit=1 << 20), source=[1, 2]) == [[1, 2]]
    assert bench.records(ToBroadcast("b", single=True, limit=1 << 20), source=[{"k": 1}]) == [{"k": 1}]
    array = bench.records(
        ToBroadcast("b", single=False, limit=1 << 20), source=bench.blocks_of(np.arange(3), kind="array")
    )
    assert array[0].tolist() == [0, 1, 2]


def test_a_broadcast_of_nothing_or_too_much_says_so(bench: Bench) -> None:
    failure = bench.failure(ToBroadcast("b", single=True, limit=1 << 20), source=[])
    assert failure.failure is FailureClass.USER_ERROR
    assert "produced nothing" in failure.message
    failure = bench.failure(ToBroadcast("b", single=False, limit=1000), source=list(range(1000)))
    assert failure.failure is FailureClass.USER_ERROR
    assert "limit of 1,000" in failure.message


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
