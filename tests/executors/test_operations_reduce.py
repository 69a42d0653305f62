"""Sorts, reduces, broadcasts, samples and the cuts of a partition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from executors.bench import Bench, call
from executors.operation_functions import FIRST, FIXTURES, by, concat, first_column, name, tens
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors import Result
from treadle.executors.program import (
    BlockInput,
    By,
    Cuts,
    MapRecords,
    Reduce,
    Sample,
    Scatter,
    Sort,
    ToBroadcast,
    Value,
)
from treadle.primitives.errors import FailureClass
from treadle.primitives.shuffling.keys import identity, stable_hash

KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["a", "b", "é", ""]), st.floats(allow_infinity=False)
)
PAIRS = st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=30)


def pair_up(left: Any, right: Any) -> Any:
    """Not associative, so it shows the shape of a fold."""
    return (left, right)


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
    """Level by level, as docs/semantics.md defines it."""
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
    assert "'rows' is of type int, declared as string" in bench.failure(op, source=[1, 2]).message


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
