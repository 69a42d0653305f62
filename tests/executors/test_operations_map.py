"""Maps per record and per partition: kinds, flat results, metrics, tolerated failures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from executors.bench import Bench, call
from executors.operation_functions import divide, per_record, twice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.executors import Result
from treadle.executors.program import MapPartition, MapRecords, Op, RangeSplit, Reduce
from treadle.primitives import functions
from treadle.primitives.errors import FailureClass


def add(record: int, amount: int = 1) -> int:
    return record + amount


def total(records: Iterator[int]) -> int:
    return sum(records)


def evens(records: Iterator[int]) -> Iterator[int]:
    return (record for record in records if record % 2 == 0)


# -- per: record -------------------------------------------------------------------------------------------------------


def test_a_map_keeps_order_and_passes_arguments(bench: Bench) -> None:
    assert bench.records(per_record(add, amount=10), source=[3, 1, 2]) == [13, 11, 12]


def test_none_is_a_record(bench: Bench) -> None:
    assert bench.records(per_record(_nothing), source=[1, 2]) == [None, None]


def _nothing(record: Any) -> None:
    return None


def test_tuples_and_strings_are_spliced_only_when_flat(bench: Bench) -> None:
    assert bench.records(per_record(_echo), source=[(1, 2), "ab"]) == [(1, 2), "ab"]
    assert bench.records(per_record(_echo, flat=True), source=[(1, 2), "ab"]) == [1, 2, "a", "b"]


def _echo(record: Any) -> Any:
    return record


def test_a_row_of_a_table_is_a_dict_and_of_an_array_its_element(bench: Bench) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    assert bench.records(per_record(_echo), source=bench.blocks_of(table, kind="table")) == table.to_pylist()
    array = np.arange(6).reshape(3, 2)
    rows = bench.records(per_record(_echo), source=bench.blocks_of(array, kind="array"))
    assert [row.tolist() for row in rows] == array.tolist()


def test_a_record_may_be_an_array_and_the_partition_is_still_objects(bench: Bench) -> None:
    outcome = bench.outcome(per_record(_zeros), source=[2, 3])
    assert (outcome.kind, outcome.rows) == ("objects", 2)


def _zeros(record: int) -> Any:
    return np.zeros(record)


STEPS: dict[str, Op] = {
    "add": per_record(add, "add"),
    "twice": per_record(twice, "twice", flat=True),
    "evens": MapPartition("evens", call(evens), flat=True),
    "total": MapPartition("total", call(total)),
    "tolerant": MapRecords("tolerant", call(divide), tolerate=True),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    records=st.lists(st.integers(-3, 50), max_size=60),
    steps=st.lists(st.sampled_from(["add", "twice", "evens"]), max_size=4),
    last=st.sampled_from(["add", "total", "tolerant"]),
)
def test_a_fused_chain_gives_what_its_stages_give_one_by_one(
    bench: Bench, records: list[int], steps: list[str], last: str
) -> None:
    chain = [STEPS[name] for name in [*steps, last]]
    unfused: Any = records
    for op in chain:
        unfused = bench.records(op, source=unfused)
    assert bench.records(*chain, source=records) == unfused


def test_large_partitions_cross_every_batch_boundary(bench: Bench) -> None:
    records = bench.records(per_record(twice, flat=True), per_record(add, "b"), source=RangeSplit(0, 200_000), inline=0)
    assert records == [value + 1 for value in range(200_000) for _ in range(2)]


def test_one_record_may_expand_lazily_beyond_a_batch(bench: Bench) -> None:
    assert bench.records(per_record(_count, flat=True), MapPartition("b", call(total)), source=[100_000]) == [
        4999950000
    ]


def _count(record: int) -> Iterator[int]:
    return iter(range(record))


# -- per: partition ----------------------------------------------------------------------------------------------------


def test_a_returned_array_or_table_is_the_partition(bench: Bench) -> None:
    outcome = bench.outcome(MapPartition("a", call(_to_array)), source=[1, 2, 3])
    assert (outcome.kind, outcome.rows) == ("array", 3)
    outcome = bench.outcome(MapPartition("a", call(_to_table)), source=[1, 2, 3])
    assert (outcome.kind, outcome.rows) == ("table", 3)


def _to_array(records: Iterator[int]) -> Any:
    return np.array(list(records))


def _to_table(records: Iterator[int]) -> Any:
    return pa.RecordBatch.from_pydict({"a": list(records)})


@pytest.mark.parametrize("value", [5, "ab", b"ab", {"a": 1}, (1, 2), [1, 2], None, np.array(3.0)], ids=repr)
def test_anything_else_returned_for_a_partition_is_one_record(bench: Bench, value: Any) -> None:
    global _given
    _given = value
    assert bench.records(MapPartition("a", call(_give)), source=[1, 2]) == [value]


_given: Any = None


def _give(records: Iterator[Any]) -> Any:
    return _given


def test_a_partition_of_arrays_reaches_the_next_fused_stage_read_only(bench: Bench) -> None:
    failure = bench.failure(MapPartition("a", call(_to_array)), MapPartition("b", call(_write)), source=[1, 2])
    assert (failure.stage, failure.error) == ("b", "ValueError")
    assert "read-only" in failure.message


def _write(array: Any) -> Any:
    array[0] = 9
    return array


@pytest.mark.parametrize("shape", ["array", "list", "tuple", "dict"])
@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "strided"])
def test_an_array_in_a_record_is_read_only_whether_a_block_or_a_fused_stage_gave_it(
    bench: Bench, shape: str, step: int
) -> None:
    make, write = per_record(make_array, "a", shape=shape, step=step), per_record(write_first, "b")
    fused = bench.failure(make, write, source=[4])
    apart = bench.failure(write, source=bench.records(make, source=[4]))
    assert (fused.error, fused.message) == (apart.error, apart.message)
    assert "read-only" in fused.message


def make_array(size: int, shape: str, step: int) -> Any:
    array = np.arange(size)[::step]
    return {"array": array, "list": [array], "tuple": (0, (array,)), "dict": {"a": [array]}}[shape]


def write_first(record: Any) -> None:
    while not isinstance(record, np.ndarray):
        record = list(record.values() if isinstance(record, dict) else record)[-1]
    record[0] = 9


def test_a_combine_may_not_write_into_its_first_record(bench: Bench) -> None:
    fold = Reduce("r", "partition", combine=functions.reference(add_in_place))
    failure = bench.failure(per_record(make_array, shape="array", step=1), fold, source=[4, 4])
    assert (failure.stage, failure.error) == ("r", "ValueError")


def add_in_place(a: Any, b: Any) -> Any:
    a += b
    return a


def test_an_empty_partition_is_given_to_functions_per_partition_but_not_per_record(bench: Bench) -> None:
    assert bench.records(MapPartition("a", call(total)), source=[]) == [0]
    assert bench.records(per_record(divide), source=[]) == []


def test_a_function_that_stops_early_does_not_shorten_the_stage_before_it(bench: Bench) -> None:
    ops = (per_record(divide, "a"), MapPartition("b", call(_first)))
    assert bench.records(*ops, source=[3, 4]) == [4.0]
    failure = bench.failure(*ops, source=[3] * 5000 + [0])
    assert (failure.stage, failure.error, failure.message) == ("a", "ZeroDivisionError", "division by zero")
    assert failure.traceback.startswith("At record 5000 of the input of a:\n")


def _first(records: Iterator[Any]) -> Any:
    return next(records)


def test_a_later_function_cannot_swallow_an_earlier_failure(bench: Bench) -> None:
    failure = bench.failure(per_record(divide, "a"), MapPartition("b", call(_swallow)), source=[1, 0])
    assert (failure.stage, failure.error) == ("a", "ZeroDivisionError")


def _swallow(records: Iterator[Any]) -> int:
    try:
        return sum(records)
    except BaseException:  # noqa: BLE001
        return -1


def test_an_undeclared_generator_is_refused_with_the_remedy(bench: Bench) -> None:
    failure = bench.failure(MapPartition("a", call(evens)), source=[1])
    assert failure.failure is FailureClass.USER_ERROR
    assert "flat: true" in failure.message


# -- metrics -----------------------------------------------------------------------------------------------------------


def measured(record: Any) -> Result:
    return Result(record, {"n": record})


@pytest.mark.parametrize(("kind", "expected"), [("sum", 6), ("min", 1), ("max", 3)])
def test_metrics_of_records_are_aggregated_as_declared(bench: Bench, kind: str, expected: int) -> None:
    op = MapRecords("a", call(measured), metrics={"n": kind})
    outcome = bench.outcome(op, source=[1, 3, 2])
    assert outcome.metrics == {"a": {"n": expected}}
    assert outcome.block is not None
    assert bench.values(outcome.block) == [[1, 3, 2]]


def test_numpy_scalars_become_plain_metrics(bench: Bench) -> None:
    outcome = bench.outcome(MapPartition("a", call(_mean), metrics={"mean": "max"}), source=[1, 2])
    assert outcome.metrics == {"a": {"mean": 1.5}}
    assert type(outcome.metrics["a"]["mean"]) is float


def _mean(records: Iterator[int]) -> Result:
    return Result(None, {"mean": np.mean(list(records))})


@pytest.mark.parametrize(
    ("declared", "metrics", "complaint"),
    [
        ({}, {"n": 1}, "not declared"),
        ({"n": "sum"}, {"m": 1}, "did not report the metric 'n'"),
        ({"n": "sum"}, {"n": 1, "m": 1}, "'m' is not declared"),
        ({"n": "sum"}, {"n": math.nan}, "is nan"),
        ({"n": "max"}, {"n": -math.inf}, "is -inf"),
        ({"n": "sum"}, {"n": "1"}, "of type str"),
        ({"n": "sum"}, {"n": True}, "of type bool"),
    ],
)
def test_metrics_that_do_not_fit_are_user_errors(
    bench: Bench, declared: dict[str, str], metrics: dict[str, Any], complaint: str
) -> None:
    global _metrics
    _metrics = metrics
    for op in (MapRecords("a", call(_measure), metrics=declared), MapPartition("a", call(_measure), metrics=declared)):
        failure = bench.failure(op, source=[1])
        assert failure.failure is FailureClass.USER_ERROR
        assert complaint in failure.message


_metrics: dict[str, Any] = {}


def _measure(record: Any) -> Result:
    return Result(1, _metrics)


def test_a_plain_result_where_metrics_are_declared_is_a_user_error(bench: Bench) -> None:
    failure = bench.failure(MapRecords("a", call(add), metrics={"n": "sum"}), source=[1])
    assert "did not report the metric 'n'" in failure.message


def test_a_result_without_metrics_is_its_value(bench: Bench) -> None:
    assert bench.records(per_record(_sometimes), source=[1, 2, 3]) == [1, 2, 3]


def _sometimes(record: int) -> Any:
    return Result(record) if record == 2 else record
