"""Failures that a map tolerates, up to the last attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import pytest
from executors.bench import Bench, call
from executors.operation_functions import divide, per_record, some_then_fail, twice

from treadle.executors.program import Failure, MapPartition, MapRecords, Outcome, StageCount
from treadle.primitives.errors import FailureClass

# -- tolerated failures ------------------------------------------------------------------------------------------------


def test_failed_records_are_set_aside_with_what_went_wrong(bench: Bench) -> None:
    outcome = bench.outcome(MapRecords("a", call(divide), tolerate=True), source=[3, 0, 4, 0], index=5)
    assert outcome.block is not None
    assert bench.values(outcome.block) == [[4.0, 3.0]]
    assert outcome.counts == {"a": StageCount(4, 2)}
    assert outcome.failed_items is not None
    (items,) = bench.values(outcome.failed_items)
    assert [item.pop("message") for item in items] == ["division by zero"] * 2
    nowhere = {"uri": None, "line": None, "row": None, "fromByte": 0}
    assert items == [
        {"stage": "a", "partition": 5, "position": position, **nowhere, "error": "ZeroDivisionError", "record": 0}
        for position in (1, 3)
    ]


def test_positions_refer_to_the_failed_stage(bench: Bench) -> None:
    ops = (per_record(twice, "a", flat=True), MapRecords("b", call(divide), tolerate=True))
    outcome = bench.outcome(*ops, source=[1] * 1500 + [0])
    assert outcome.failed_items is not None
    (items,) = bench.values(outcome.failed_items)
    assert [item["position"] for item in items] == [3000, 3001]


def test_a_failed_record_emits_nothing_even_if_its_generator_had_yielded(bench: Bench) -> None:
    op = MapRecords("a", call(some_then_fail), flat=True, tolerate=True)
    assert bench.records(op, source=[1, 0, 2]) == [1, 2]


def test_a_failure_that_may_pass_fails_every_attempt_but_the_final_one(bench: Bench) -> None:
    op = MapRecords("a", call(divide), tolerate=True)
    failure = bench.failure(op, source=[1, 0], final=False)
    assert (failure.error, failure.retryable) == ("ZeroDivisionError", True)
    assert bench.records(op, source=[1, 0], final=True) == [12.0]


def test_failures_that_cannot_pass_are_set_aside_at_once(bench: Bench) -> None:
    op = MapRecords("a", call(divide), tolerate=True, non_retryable=("ArithmeticError",))
    assert bench.outcome(op, source=[1, 0], final=False).counts == {"a": StageCount(2, 1)}


def test_a_tolerant_partition_that_fails_is_empty(bench: Bench) -> None:
    op = MapPartition("a", call(_first_divided), tolerate=True)
    outcome = bench.outcome(op, source=[0])
    assert (outcome.rows, outcome.counts) == (0, {"a": StageCount(1, 1)})
    assert bench.outcome(op, source=[1]).counts == {"a": StageCount(1, 0)}


def _first_divided(records: Iterator[int]) -> float:
    return 12 / next(records)


def test_a_flat_tolerant_partition_fails_as_a_whole(bench: Bench) -> None:
    op = MapPartition("a", call(_all_then_fail), flat=True, tolerate=True)
    outcome = bench.outcome(op, source=[1, 2, 3])
    assert (outcome.rows, outcome.counts) == (0, {"a": StageCount(1, 1)})


def _all_then_fail(records: Iterator[int]) -> Iterator[int]:
    yield from records
    raise ValueError("at the end")


def test_running_out_of_memory_is_never_tolerated(bench: Bench) -> None:
    failure = bench.failure(MapRecords("a", call(_no_memory), tolerate=True), source=[1])
    assert failure.failure is FailureClass.OUT_OF_MEMORY


def _no_memory(record: Any) -> None:
    raise MemoryError("full")


@pytest.mark.parametrize(
    ("record", "listed"),
    [
        ((1, "x"), [1, "x"]),
        ({1: b"\x00"}, {"1": "AA=="}),
        (date(2026, 1, 2), "2026-01-02"),
        (np.int64(3), 3),
        (np.array([[1, 2]]), [[1, 2]]),
    ],
    ids=repr,
)
def test_failed_records_are_listed_as_plain_json(bench: Bench, record: Any, listed: Any) -> None:
    outcome = bench.outcome(MapRecords("a", call(_refuse), tolerate=True), source=[record])
    assert items_of(bench, outcome)[0]["record"] == listed


def _refuse(record: Any) -> None:
    raise ValueError


def test_a_failed_record_that_cannot_be_pickled_is_listed_by_its_repr(bench: Bench) -> None:
    ops = (per_record(_as_lambda, "a"), MapRecords("b", call(divide), tolerate=True))
    (item,) = items_of(bench, bench.outcome(*ops, source=[1]))
    assert item["record"] is None
    assert "lambda" in item["recordRepr"]
    assert " at 0x" not in item["recordRepr"]


def _as_lambda(record: Any) -> Any:
    return lambda: record


def test_generator_is_refused_as_a_record(bench: Bench) -> None:
    for op in (per_record(twice), MapRecords("a", call(twice), tolerate=True, non_retryable=("UsageError",))):
        report = bench.report(op, source=[1], final=False)
        assert "flat: true" in (
            report.message if isinstance(report, Failure) else items_of(bench, report)[0]["message"]
        )


def items_of(bench: Bench, outcome: Outcome) -> Any:
    assert outcome.failed_items is not None
    return bench.values(outcome.failed_items)[0]


def test_failed_records_name_their_stage_with_its_iterations(bench: Bench) -> None:
    outcome = bench.outcome(MapRecords("a", call(divide), tolerate=True), source=[0], segment="l-2/a")
    assert items_of(bench, outcome)[0]["stage"] == "l[2].a"
